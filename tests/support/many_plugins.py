"""Many installed distributions with a plugin each, to time and to count discovery.

.venv/bin/python tests/support/many_plugins.py      prints what discovery takes with 50
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_SOURCE = '''"""Declares a scheduler."""
from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [Component(name="many-{n}", target="many_{n}.policy:Policy", summary="one of many")]

plugin = Plugin()
'''
_LONG = "\n\n" + "A README, as distributions carry it in their METADATA.\n" * 200
_TIMED = """
import time
import octavo.plugin.catalogue, octavo.hookspecs, importlib.metadata
start_s = time.perf_counter()
catalogue = octavo.plugin.catalogue.build_catalogue()
print(1000 * (time.perf_counter() - start_s), len(catalogue.plugins))
"""


def make_many_plugins(folder: Path, num: int) -> Path:
    """Write the distributions into a folder for `sys.path`, and return it."""
    for n in range(num):
        package = folder / f"many_{n}"
        package.mkdir()
        (package / "__init__.py").write_text(_SOURCE.format(n=n))
        info = folder / f"octavo_many_{n}-1.0.dist-info"
        info.mkdir()
        facts = f"Metadata-Version: 2.1\nName: octavo-many-{n}\nVersion: 1.0\n"
        (info / "METADATA").write_text(facts + _LONG)
        (info / "entry_points.txt").write_text(f"[octavo]\nmany = many_{n}:plugin\n")
    return folder


def discovery_ms(num: int, repeats: int = 7) -> float:
    """Return the median time of discovery in fresh processes, bytecode written before."""
    with tempfile.TemporaryDirectory() as folder:
        path = make_many_plugins(Path(folder), num)
        environment = {**os.environ, "PYTHONPATH": str(path)}
        command = [sys.executable, "-c", _TIMED]
        times_ms = []
        for _ in range(repeats + 1):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            times_ms.append(float(done.stdout.split()[0]))
        return statistics.median(times_ms[1:])


if __name__ == "__main__":
    for number in (0, 50):
        sys.stdout.write(f"{number:3} plugins beside the stock: {discovery_ms(number):.1f} ms\n")
