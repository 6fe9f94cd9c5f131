"""What is wrong with an adapter's tensors, in few lines: a fault of every layer is told once.

Knows names and texts. Does not know files or models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_LINES: Final = 8
_NUMBER: Final = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class TensorFault:
    """What is wrong with one tensor; a `hint` may differ between tensors of the same fault."""

    name: str
    text: str
    hint: str = ""


def fault_lines(faults: Iterable[TensorFault]) -> list[str]:
    """Return one line for each fault, layers in the order of their numbers.

    Tensors whose names differ in numbers alone and that have the same fault share a line, which
    names the first and says how many more there are.
    """
    groups: dict[tuple[str, str], list[TensorFault]] = {}
    for fault in sorted(faults, key=lambda fault: _in_order(fault.name)):
        groups.setdefault((_NUMBER.sub("*", fault.name), fault.text), []).append(fault)
    alike = list(groups.values())
    lines = [_line(group) for group in alike[:_MAX_LINES]]
    num_left = sum(map(len, alike[_MAX_LINES:]))
    return [*lines, f"and {num_left} more faults"] if num_left else lines


def _line(alike: list[TensorFault]) -> str:
    first = alike[0]
    more = f" (and {len(alike) - 1} like it)" if len(alike) > 1 else ""
    hint = f"; {first.hint}" if first.hint else ""
    return f"{first.name}{more}: {first.text}{hint}"


def _in_order(name: str) -> tuple[list[str], list[int]]:
    """Return a key that sorts layer 10 behind layer 9, texts before numbers."""
    parts = _NUMBER.split(name)
    return parts[::2], [int(number) for number in parts[1::2]]
