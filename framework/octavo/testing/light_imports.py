"""What importing a component's target brings along, found out in a process of its own.

Knows targets and names of libraries. Does not know components.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from octavo.testing.subjects import Subject

_HEAVY = ("torch", "transformers")
_PROBE = """
import sys
from octavo.plugin.files import import_target
import_target(sys.argv[1])
print(*sorted(set(sys.argv[2:]) & set(sys.modules)))
"""


def require_light(subject: Subject) -> None:
    """Raise PromiseBroken when importing the target imports torch or transformers, or fails.

    A class that was made in a function cannot be imported, so that nothing is tried.
    """
    target = subject.entry.component.target
    if isinstance(target, type):
        if "<locals>" in target.__qualname__:
            return
        target = f"{inspect.getfile(target)}:{target.__qualname__}"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _PROBE, target, *_HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)  # noqa: S603
    if done.returncode or done.stdout.strip():
        found = done.stdout.strip() or f"nothing: it fails\n{done.stderr.strip()}"
        raise PromiseBroken(f"importing {target} imports {found}")
