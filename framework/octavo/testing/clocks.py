"""Finds out whether a component reads a clock, draws random numbers or opens files in a call.

Whatever way such a function was imported, its call is seen by the interpreter's profiler. Knows
functions. Does not know components.
"""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_FORBIDDEN: Mapping[int, str] = MappingProxyType(
    {
        **{id(getattr(time, name)): f"time.{name}" for name in _CLOCKS},
        **{id(getattr(time, f"{name}_ns")): f"time.{name}_ns" for name in _CLOCKS},
        id(os.urandom): "os.urandom",
    }
)
#: of datetime.datetime and random.Random, whose methods are bound anew at each call
_METHODS = frozenset({"now", "utcnow", "today", "random", "getrandbits"})
_OPENERS = frozenset({"open", "open_code", "connect", "bind", "fork_exec"})
_OPENED_IN = frozenset({"_io", "io", "posix", "nt", "socket", "_socket", "_posixsubprocess"})
_OWNERS = frozenset({"datetime", "date", "Random", "SystemRandom"})


@contextmanager
def watched_calls(module: str) -> Iterator[list[str]]:
    """Yield a list that fills with the forbidden calls which a module's code makes, with places.

    Calls by way of `random` and `datetime` count as well. The profiler of before is put back.
    """
    seen: list[str] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        name = _name_of(function)
        place = name and _caller(frame, module)
        if place:
            seen.append(f"{name} ({place})")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def _name_of(function: Any) -> str | None:
    known = _FORBIDDEN.get(id(function))
    if known is not None or getattr(function, "__name__", "") not in _METHODS:
        return known
    owner = getattr(function, "__self__", None)
    owner_name = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    return f"{owner_name}.{function.__name__}" if owner_name in _OWNERS else None


def _caller(frame: FrameType | None, module: str) -> str | None:
    """Return the place in the module that called, perhaps by way of the standard library."""
    library = (random.__name__, "datetime", "uuid", "secrets")
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == module:
            return _place(frame)
        if name not in library:
            return None
        frame = frame.f_back
    return None


@contextmanager
def opened_by() -> Iterator[list[str]]:
    """Yield a list that fills with the names of files and sockets that this thread opens."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and getattr(function, "__name__", "") in _OPENERS:
            owner = getattr(function, "__module__", None) or type(function.__self__).__name__
            if owner in _OPENED_IN:
                seen.append(f"something with {owner}.{function.__name__} ({_place(frame)})")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
