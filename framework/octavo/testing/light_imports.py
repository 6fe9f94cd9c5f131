"""What importing a component's target brings along, found out in a process of its own.

Targets of one plugin are imported one after the other in the same process: it takes a second.

Knows targets and names of libraries. Does not know components.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.testing.subjects import Subject

_HEAVY = ("torch", "transformers")
_PROBE = """
import json, sys
from octavo.plugin.files import import_target
found = {}
for target in sys.argv[1:]:
    before = set(sys.modules)
    try:
        import_target(target)
    except Exception as error:
        found[target] = f"nothing: it fails with {type(error).__name__}: {error}"
    else:
        new = set(sys.modules) - before
        found[target] = ", ".join(one for one in HEAVY if one in new)
print(json.dumps(found))
""".replace("HEAVY", repr(_HEAVY))


def require_light(subject: Subject) -> None:
    """Raise PromiseBroken when importing the target imports torch or transformers, or fails.

    A class that was made in a function cannot be imported, so that nothing is tried.
    """
    target = subject.entry.component.target
    if isinstance(target, type):
        if "<locals>" in target.__qualname__:
            return
        target = f"{inspect.getfile(target)}:{target.__qualname__}"
    found = _imported_by(_beside(subject, target))[target]
    if found:
        raise PromiseBroken(f"importing {target} imports {found}")


def _beside(subject: Subject, target: str) -> tuple[str, ...]:
    """Return the targets of the same kind that its plugin declares, or its own alone."""
    declared = () if subject.record is None else subject.record.components
    targets = [one.target for kind, one in declared if kind == subject.kind]
    named = tuple(one for one in targets if isinstance(one, str))
    return named if target in named else (target,)


@functools.cache
def _imported_by(targets: tuple[str, ...]) -> Mapping[str, str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _PROBE, *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)  # noqa: S603
    if done.returncode:
        return dict.fromkeys(targets, f"nothing: it fails\n{done.stderr.strip()}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found
