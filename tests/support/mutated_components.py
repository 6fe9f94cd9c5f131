"""Stock components from changed sources, and whether the conformance kit notices.

Each is built in a module of its own and tried in a process of its own, which has its own limit of
processor time and memory: a change that hangs is killed by it.
"""

from __future__ import annotations

import importlib
import os
import random
import resource
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from octavo.testing.checking import invariants_of
from octavo.testing.invariants import PromiseBroken
from octavo.testing.subjects import Subject, stock_catalogue, subject_of
from source_mutations import Mutation, mutations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEMORY_LIMIT_BYTES = 6 << 30
SURVIVED = "survived"
#: it tries the class again in another process, which has it unchanged: all would differ from that
ELSEWHERE = "another_process_gives_the_same_schedule"


class Target(NamedTuple):
    """A class under test: its kind, and its stock component's name if it is one by itself."""

    kind: str
    class_name: str
    component: str | None = None


class Part(NamedTuple):
    """Modules that make components together, those that others import first."""

    name: str
    modules: tuple[str, ...]
    targets: tuple[Target, ...]
    #: what else the targets' classes are in, or are made of: as it is, but made of the others anew
    users: tuple[str, ...] = ()
    #: as `octavo plugins check` has it: 1 is what a user gets
    effort: float = 0.4
    #: a change that takes longer hangs: its parts as they are take less than a tenth
    cpu_limit_s: int = 30


class Fate(NamedTuple):
    """What became of one mutation."""

    module: str
    mutation: Mutation
    verdict: str

    @property
    def key(self) -> str:
        return f"{self.module.rpartition('.')[2]}.{self.mutation.key}"

    def __str__(self) -> str:
        return f"{self.module}:{self.mutation.line} {self.mutation.key}: {self.verdict}"


def every_kth(part: Part, most: int) -> list[tuple[str, Mutation]]:
    """Return each k-th mutation of a part by module and line, with the least k for so many."""
    every = sample_of(part, None)
    return every[:: -(-len(every) // most)]


def sample_of(part: Part, most: int | None, seed: int = 0) -> list[tuple[str, Mutation]]:
    """Return so many mutations of a part, the same each time."""
    every = [
        (module, one)
        for module in part.modules
        for one in mutations(Path(str(importlib.import_module(module).__file__)).read_text())
    ]
    if most is None or most >= len(every):
        return every
    return random.Random(seed).sample(every, most)  # noqa: S311 - no secret


def fates(part: Part, chosen: Sequence[tuple[str, Mutation]]) -> Iterator[Fate]:
    """Try each mutation in turn."""
    for module, mutation in chosen:
        yield Fate(module, mutation, _in_a_child(part, module, mutation))


def unchanged(part: Part) -> tuple[str, float]:
    """Return the verdict on a part as it is, and the seconds of processor time that it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = _in_a_child(part, "", None)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _in_a_child(part: Part, module: str, mutation: Mutation | None) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (part.cpu_limit_s, part.cpu_limit_s))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
            os.write(writing, verdict(part, module, mutation).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text or "killed: it hangs, or takes all memory"


def verdict(part: Part, module: str, mutation: Mutation | None) -> str:
    """Return the number that is broken, or that none is."""
    try:
        spaces = _imported(part, module, mutation)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it is noticed
        return f"killed: it cannot be imported: {error!r}"
    where = mutation.where if mutation is not None else ""
    of_class = [one for one in part.targets if where.startswith(f"{one.class_name}.")]
    for target in of_class or part.targets:
        space = next(one for one in reversed(spaces) if target.class_name in one)
        subject = _subject(target, space[target.class_name], part.effort)
        for invariant in invariants_of(subject):
            if invariant.name == ELSEWHERE:
                continue
            try:
                invariant.run(subject)
            except PromiseBroken as error:
                return f"killed by {invariant.number}: {str(error).splitlines()[0]}"
            except BaseException as error:  # noqa: BLE001 - as above
                return f"killed: {error!r}"
    return SURVIVED


def _subject(target: Target, cls: type, effort: float) -> Subject:
    component: object = cls
    if target.component is not None:
        entry = stock_catalogue().get(target.kind, target.component)
        component = replace(entry.component, target=cls)
    subject = subject_of(target.kind, component)
    subject.aim = "any"
    subject.effort = effort
    return subject


def _imported(part: Part, changed: str, mutation: Mutation | None) -> list[dict[str, object]]:
    """Return the names of each module, where those of one refer to the others' fresh ones.

    The fresh modules stay: a child process has no use for the real ones.
    """
    fresh: dict[int, object] = {}
    spaces = []
    for name in (*part.modules, *part.users):
        real = importlib.import_module(name)
        path = Path(str(real.__file__))
        tree = mutation.tree if mutation and name == changed else path.read_text()
        module = types.ModuleType(name)
        module.__file__ = str(path)
        # classes of later modules are derived from those of this one
        sys.modules[name] = module
        exec(compile(tree, str(path), "exec"), module.__dict__)  # noqa: S102 - our own source
        for key, value in vars(module).items():
            if id(value) in fresh:
                setattr(module, key, fresh[id(value)])
        for key, value in vars(real).items():
            if getattr(value, "__module__", None) == name:
                fresh[id(value)] = getattr(module, key)
        spaces.append(vars(module))
    return spaces
