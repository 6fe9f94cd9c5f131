from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
import octavo.frontend.preprocess, octavo.frontend.output_processor
print([m for m in ("torch", "transformers", "numpy", "octavo.plugin") if m in sys.modules])
import octavo.llm, octavo.async_llm
print([m for m in ("torch", "transformers") if m in sys.modules])
"""


def test_front_end_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n[]\n"
