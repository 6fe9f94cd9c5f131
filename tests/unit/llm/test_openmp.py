from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import os, sys
{before}
from octavo.openmp import let_threads_sleep
let_threads_sleep()
print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("before", "variables", "expected"),
    [
        ("", {}, "20000 False"),
        ("", {"GOMP_SPINCOUNT": "7"}, "7 False"),
        ("", {"OMP_WAIT_POLICY": "active"}, "None False"),
        ("import torch", {}, "None True"),  # it has read its variables
    ],
)
def test_runtime_is_told_to_sleep_unless_the_user_or_torch_was_first(before, variables, expected):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(before=before)],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected
