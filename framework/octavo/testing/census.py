"""Counts what an object holds on to, so that what grows and is never given back is seen.

Knows containers and attributes. Does not know components.
"""

from __future__ import annotations

from typing import Any

_ATOMS = (str, bytes, int, float, complex, bool, type(None), type)


def census(root: object) -> int:
    """Return how many elements and attributes can be reached, each object looked into once."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    count = 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, _ATOMS) or id(one) in seen:
            continue
        seen.add(id(one))
        held = _held_by(one)
        count += len(held)
        waiting += held
    return count


def _held_by(one: Any) -> list[Any]:
    if isinstance(one, dict):
        return [*one.keys(), *one.values()]
    if isinstance(one, list | tuple | set | frozenset):
        return list(one)
    if callable(one) and not hasattr(type(one), "__slots__") and not hasattr(one, "__dict__"):
        return []
    slots = [name for base in type(one).__mro__ for name in getattr(base, "__slots__", ())]
    held = [getattr(one, name) for name in slots if hasattr(one, name)]
    return held + list(getattr(one, "__dict__", {}).values())
