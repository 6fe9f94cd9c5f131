"""The memory that a call of the kernels may use: what the variables of its callers lead to.

A kernel is given addresses, and no sizes. Whatever they lead to is kept alive by a variable of
some function that is running, so that it is found there. Knows tensors, arrays and `ctypes`. Does
not know kernels.
"""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

#: packages that run tests: what called them is not looked at, nor objects of theirs
RUNNERS = ("_pytest", "pytest", "pluggy", "hypothesis")
#: packages whose objects hold no memory, or are looked into here
LEAVES = (*RUNNERS, "torch", "numpy", "ctypes", "unittest", "subprocess", "_io")


class ReachedMemory:
    """Spans of memory that do not overlap, and where pointers stand in them."""

    def __init__(self, frame: FrameType) -> None:
        """Look at the variables of a frame, and of those that it was called from."""
        self._kept: list[object] = []
        self._spans: list[tuple[int, int]] = []
        self._pointers: list[int] = []
        self._in_use: set[int] = set()  # pointers that must lead somewhere
        self._look_through(callers_variables(frame))
        self._spans = list(merged(sorted(self._spans)))
        self._pointers = sorted(set(self._pointers))

    def span(self, address: int) -> tuple[int, int]:
        """Return the span around an address; LookupError if there is none."""
        found = self._find(address)
        if found is None:
            raise LookupError(f"no variable leads to the memory at {address:#x}")
        return found

    def pointers(self, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Yield where pointers stand in a span that are not null, and where they lead to.

        In an array some may be left from an earlier use, and are passed over if they lead nowhere.
        """
        first, last = (bisect_right(self._pointers, end - 1) for end in span)
        for place in self._pointers[first:last]:
            target = ctypes.c_void_p.from_address(place).value
            if target and (place in self._in_use or self._find(target)):
                yield place, target

    def _find(self, address: int) -> tuple[int, int] | None:
        index = bisect_right(self._spans, (address, sys.maxsize)) - 1
        if index < 0:
            return None
        first, end = self._spans[index]
        # an array of nothing has an address too
        return (first, end) if first <= address < end or first == address == end else None

    def _look_through(self, roots: Iterable[object]) -> None:
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            self._kept.append(one)  # no other object may get its id
            if not self._note(one):
                waiting += parts_of(one)

    def _note(self, one: object) -> bool:
        """Note the memory of an object, and return whether it has any."""
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            self._add(storage.data_ptr(), storage.nbytes())
        elif isinstance(one, np.ndarray):
            first, end = np.lib.array_utils.byte_bounds(one)
            self._add(first, end - first)
        elif isinstance(one, (ctypes.Structure, ctypes.Array)):
            address = ctypes.addressof(one)
            self._add(address, ctypes.sizeof(one))
            places = [address + offset for offset in pointer_offsets(type(one))]
            self._pointers += places
            if isinstance(one, ctypes.Structure):
                self._in_use.update(places)
        else:
            return False
        return True

    def _add(self, address: int, size: int) -> None:
        if address:
            self._spans.append((address, address + size))


def callers_variables(frame: FrameType | None) -> Iterator[object]:
    """Yield the variables of a frame and its callers, up to what runs the test."""
    while frame is not None and not is_of(frame.f_globals.get("__name__", ""), RUNNERS):
        yield from frame.f_locals.values()
        frame = frame.f_back


def parts_of(one: object) -> list[object]:
    """What an object holds."""
    if isinstance(one, (list, tuple, set, frozenset)):
        return list(one)
    if isinstance(one, dict):
        return list(one.values())
    kind = type(one)
    if isinstance(one, (type, ModuleType, FunctionType)) or is_of(kind.__module__, LEAVES):
        return []
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    own = [getattr(one, name) for name in slots if hasattr(one, name)]
    return own + list(getattr(one, "__dict__", {}).values())


def is_of(module: str, packages: tuple[str, ...]) -> bool:
    return module.partition(".")[0] in packages


def merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join sorted spans that overlap."""
    current: tuple[int, int] | None = None
    for first, end in spans:
        if current is None or first >= current[1]:
            if current is not None:
                yield current
            current = first, end
        else:
            current = current[0], max(current[1], end)
    if current is not None:
        yield current


def pointer_offsets(kind: Any) -> list[int]:
    """Where pointers stand in a structure, or in an array of structures."""
    if issubclass(kind, ctypes.Array):
        size = ctypes.sizeof(kind._type_)
        inner = pointer_offsets(kind._type_)
        return [i * size + offset for i in range(kind._length_) for offset in inner]
    if issubclass(kind, ctypes.Structure):
        fields = [(getattr(kind, name).offset, field) for name, field, *_ in kind._fields_]
        return [first + offset for first, field in fields for offset in pointer_offsets(field)]
    return [0] if issubclass(kind, ctypes.c_void_p) else []
