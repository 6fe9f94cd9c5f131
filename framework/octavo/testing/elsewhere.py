"""Runs a function of the kit on a component in another process, where strings hash otherwise.

Within one process the order of a set of strings, and `hash` of one, are the same each time.

Knows entries and processes. Does not know any kind.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from octavo.plugin.catalogue import Entry
from octavo.plugin.component import Component
from octavo.plugin.files import import_target
from octavo.testing.invariants import PromiseBroken
from octavo.testing.subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Callable

_CODE = "from octavo.testing.elsewhere import answer; answer()"
_SEEDS = ("1", "2")
_TIMEOUT_S = 120
_MARK = "octavo-answer:"


def is_same_elsewhere(subject: Subject, function: Callable[[Subject], str]) -> bool:
    """Return whether a function, which imports by name, says the same there as it does here.

    True as well for a class that no other process can import, as one made in a function is.
    Raises PromiseBroken when it fails there.
    """
    asked = _asked(subject, function)
    return asked is None or _answer_to(asked) == function(subject)


def _asked(subject: Subject, function: Callable[[Subject], str]) -> dict[str, Any] | None:
    """Return all that another process needs to know, or None where it cannot import the class."""
    entry = subject.entry
    target = _importable(entry.target, subject.cls)
    if target is None:
        return None
    others = {
        name: _importable(value, getattr(entry.component, name))
        for name, value in (("options", entry.options_target), ("params", entry.params_target))
    }
    return {
        "function": f"{function.__module__}:{function.__qualname__}",
        "kind": entry.kind,
        "component": {"name": entry.name, "target": target, **others},
        "options": dict(subject.options),
    }


def _importable(target: str | None, declared: Any) -> str | None:
    """Return a target by a file where only that leads to it; None for what is within a function."""
    if target is None or "<locals>" in target:
        return None
    module, _, name = target.rpartition(":")
    if module.endswith(".py") or not isinstance(declared, type):
        return target
    return f"{inspect.getsourcefile(declared) or module}:{name}"


def _answer_to(asked: dict[str, Any]) -> str:
    seed = next(one for one in _SEEDS if one != os.environ.get("PYTHONHASHSEED"))
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(  # noqa: S603 - it is our own interpreter
        [sys.executable, "-c", _CODE],
        input=json.dumps(asked, default=str),
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not answers:
        raise PromiseBroken(f"in another process it fails\n{done.stderr.strip()[-2000:]}")
    return answers[-1].removeprefix(_MARK)


def answer() -> None:
    """Run what standard input asks for, and print what the function says."""
    asked = json.load(sys.stdin)
    component: Component[Any] = Component(
        **{k: v for k, v in asked["component"].items() if v is not None}
    )
    subject = Subject(
        Entry(kind=asked["kind"], component=component, provider="elsewhere"), asked["options"]
    )
    with closing(subject):
        print(f"{_MARK}{import_target(asked['function'])(subject)}")  # noqa: T201 - it is the answer
