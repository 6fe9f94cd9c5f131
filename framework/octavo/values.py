"""Checks of single values that callers give: each passes, or raises RequestError naming the field.

Knows kinds of values. Does not know which parameters there are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable


def require(is_good: bool, param: str, value: object, valid: str) -> None:
    """Raise RequestError, which says what is valid, unless a value is good."""
    if not is_good:
        raise RequestError(f"{param} must be {valid}, not {_shown(value)}", param=param)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python writes out no int of thousands of digits
        return "a number of thousands of digits"


def require_int(param: str, value: object) -> None:
    """Refuse what is no integer."""
    is_good = isinstance(value, int) and not isinstance(value, bool)
    require(is_good, param, value, "an integer")


def require_machine_int(param: str, value: object) -> None:
    """Refuse what does not fit 64 bits: it means nothing, and messages could not hold it."""
    require_int(param, value)
    is_good = isinstance(value, int) and -(2**63) <= value < 2**63
    require(is_good, param, value, "a 64-bit integer")


def require_ints(param: str, values: Iterable[object]) -> None:
    """Refuse a list that holds something else than integers."""
    if set(map(type, values)) <= {int}:  # lists may be as long as the vocabulary
        return
    for value in values:
        require_int(param, value)


def require_text(param: str, value: object) -> None:
    """Refuse what is no text, or an empty one."""
    require(isinstance(value, str) and value != "", param, value, "non-empty strings")


def require_finite(param: str, value: object) -> None:
    """Refuse what is no number, or not a finite one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_good = is_number and -math.inf < value < math.inf  # type: ignore[operator]
    require(is_good, param, value, "a finite number")
