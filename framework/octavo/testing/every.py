"""What is promised of every component, whatever its kind.

Knows components, their declarations and options. Does not know what any of them does.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, UnknownOptionError
from octavo.plugin.build import load_options, option_names, validate_options
from octavo.plugin.files import import_target
from octavo.testing import contract
from octavo.testing.invariants import Invariant, PromiseBroken, Promises

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

    from octavo.testing.subjects import Subject

_HEAVY = ("torch", "transformers", "numpy", "tokenizers", "litestar", "pydantic")
_PROBE = """
import importlib, sys
from octavo.plugin.discovery import declare
from octavo.plugin.files import import_target
declare(import_target(sys.argv[1]))
print(*sorted(set(sys.argv[2:]) & set(sys.modules)))
"""
_MUTABLE = (list, dict, set, bytearray)


def every_invariant(promises: Promises) -> Iterator[Invariant]:
    """Yield the invariants of all components, for the kind of these promises."""
    common = Promises(promises.kind, contract)
    for number, check in _CHECKS:
        title = common.titles[number]
        bound = functools.partial(check, promises)
        yield Invariant(promises.kind, number, title, check.__name__, bound)


def declaring_imports_nothing_heavy(promises: Promises, subject: Subject) -> str | None:
    """C1, in a process of its own."""
    del promises
    if subject.record is None or subject.record.origin != "entry-point":
        return None  # it was passed as a class: nothing declares it
    heavy = _imported_by(subject.record.value)
    if heavy:
        raise PromiseBroken(f"importing {subject.record.value} to declare imports {heavy}")
    return None


@functools.cache
def _imported_by(declaring: str) -> str:
    command = [sys.executable, "-c", _PROBE, declaring, *_HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        return f"nothing: it fails\n{done.stderr.strip()}"
    return done.stdout.strip()


def the_class_implements_its_interface(promises: Promises, subject: Subject) -> str | None:
    """C2, by the signatures; what is abstract must be there."""
    cls = subject.cls
    if not issubclass(cls, promises.interface):
        return None  # a whole core in the place of a policy
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise PromiseBroken(f"{cls.__name__} does not implement {', '.join(missing)}")
    for name, method in inspect.getmembers(promises.interface, inspect.isfunction):
        if name.startswith("_") or not hasattr(cls, name):
            continue
        problem = _signature_problem(method, getattr(cls, name))
        if problem:
            raise PromiseBroken(f"{cls.__name__}.{name} {problem}")
    return None


def _signature_problem(promised: Any, given: Any) -> str | None:
    """Return why a method cannot be called as the interface's is, or None."""
    if not callable(given):
        return "is no method"
    wanted = inspect.signature(promised).parameters
    theirs = inspect.signature(given).parameters
    if any(one.kind is one.VAR_KEYWORD for one in theirs.values()):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, one in wanted.items() if one.kind in positional]
    mine = [name for name, one in theirs.items() if one.kind in positional]
    is_open = any(one.kind is one.VAR_POSITIONAL for one in theirs.values())
    if mine[: len(names)] != names and not is_open:
        return f"takes ({', '.join(mine)}) where its interface has ({', '.join(names)})"
    extra = [
        name for name, one in theirs.items()
        if name not in wanted and one.default is one.empty and one.kind is not one.VAR_POSITIONAL
    ]  # fmt: skip
    return f"needs {', '.join(extra)}, which its interface has not" if extra else None


def options_refuse_what_they_do_not_know(promises: Promises, subject: Subject) -> str | None:
    """C3, for keys, values and their way through JSON."""
    del promises
    model = load_options(subject.entry)
    try:
        validate_options(subject.entry, {**subject.options, "no-such-option": 1})
    except UnknownOptionError:
        pass
    else:
        raise PromiseBroken("the option 'no-such-option' is taken")
    settings = subject.settings()
    for name, key in option_names(model).items():
        field = model.model_fields[_field_of(model, key)]
        if not field.description:
            raise PromiseBroken(f"the option '{name}' has no description")
        try:
            validate_options(subject.entry, {**subject.options, name: object()})
        except ConfigError:
            continue
        raise PromiseBroken(f"the option '{name}' takes an object() for a value")
    json.dumps(model.model_json_schema())
    again = model.model_validate_json(settings.model_dump_json(by_alias=True))
    if again != settings:
        raise PromiseBroken(f"options change on their way through JSON: {settings} -> {again}")
    return None


def _field_of(model: type[BaseModel], key: str) -> str:
    for name, field in model.model_fields.items():
        if key in {name, field.alias, field.validation_alias}:
            return name
    raise KeyError(key)


def two_instances_share_no_state(promises: Promises, subject: Subject) -> str | None:
    """C4, by the containers that both can reach."""
    first, second = _make(promises, subject), _make(promises, subject)
    for name, value in _attributes(first).items():
        if name in {"options", "context", "config"} or not isinstance(value, _MUTABLE):
            continue
        if _attributes(second).get(name) is value:
            raise PromiseBroken(f"two instances share the {type(value).__name__} in .{name}")
    for name, value in _class_state(subject.cls, promises.interface):
        raise PromiseBroken(f"the {type(value).__name__} .{name} belongs to the class, so to all")
    return None


def _class_state(cls: type, interface: type) -> Iterator[tuple[str, object]]:
    """Yield what the classes below the interface keep that can change."""
    for base in cls.__mro__[: cls.__mro__.index(interface) if interface in cls.__mro__ else 1]:
        for name, value in vars(base).items():
            if isinstance(value, _MUTABLE) and not name.startswith("__") and not name.isupper():
                yield name, value


def _attributes(one: object) -> dict[str, Any]:
    found = dict(getattr(one, "__dict__", {}))
    for base in type(one).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(one, name):
                found[name] = getattr(one, name)
    return found


def building_changes_nothing_global(promises: Promises, subject: Subject) -> str | None:
    """C5, as far as a process can be asked."""
    _make(promises, subject)  # what is imported on the way may set itself up
    before = _globals()
    _make(promises, subject)
    changed = [name for name, value in _globals().items() if before[name] != value]
    if changed:
        raise PromiseBroken(f"building it changes {', '.join(changed)}")
    return None


def _globals() -> dict[str, Any]:
    state: dict[str, Any] = {
        "the environment": dict(os.environ),
        "the working folder": Path.cwd(),
        "sys.path": list(sys.path),
    }
    random = sys.modules.get("random")
    if random is not None:
        state["the state of `random`"] = random.getstate()
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch's default dtype"] = torch.get_default_dtype()
        state["torch's number of threads"] = torch.get_num_threads()
        state["torch's random state"] = torch.random.get_rng_state().tolist()
    return state


def closing_twice_is_fine(promises: Promises, subject: Subject) -> str | None:
    """C6, where there is something to close."""
    component = _make(promises, subject)
    close = getattr(component, "close", None)
    if close is not None:
        close()
        close()
    return None


def _make(promises: Promises, subject: Subject) -> Any:
    return promises.make(subject) if promises.make else subject.build()


def declared_targets_lead_somewhere(promises: Promises, subject: Subject) -> str | None:
    """C7: target, options, parameters and `why_not`."""
    del promises
    component = subject.entry.component
    for field in ("target", "options", "params", "why_not"):
        value = getattr(component, field)
        if isinstance(value, str):
            import_target(value)
    reasons = subject.reasons_against()
    if not all(reasons):
        raise PromiseBroken(f"why_not returns {reasons!r}, not a list of reasons")
    return None


_CHECKS = (
    ("C1", declaring_imports_nothing_heavy),
    ("C2", the_class_implements_its_interface),
    ("C3", options_refuse_what_they_do_not_know),
    ("C4", two_instances_share_no_state),
    ("C5", building_changes_nothing_global),
    ("C6", closing_twice_is_fine),
    ("C7", declared_targets_lead_somewhere),
)
