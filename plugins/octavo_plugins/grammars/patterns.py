"""Regular expressions, written anew with the few things that every engine reads alike.

What an engine would read in its own way (case, look-around, word boundaries, classes of Unicode)
is refused. Knows Python's parser of expressions. Does not know who compiles the result.
"""

from __future__ import annotations

import re
from re import _constants as ops  # type: ignore[attr-defined]  # names of what was parsed
from re import _parser  # type: ignore[attr-defined]  # there is no other way to its tree
from typing import Any, Final

from octavo.errors import GrammarError

#: where a class is a set in some dialects and plain characters in others
_SETS: Final = re.compile(r"\[\[:|\[[^\]]*(?:\[|--|&&|\|\||~~)")
_LAST: Final = 0x10FFFF
_CLASSES: Final[dict[Any, list[tuple[int, int]]]] = {
    ops.CATEGORY_DIGIT: [(48, 57)],
    ops.CATEGORY_WORD: [(48, 57), (65, 90), (95, 95), (97, 122)],
    ops.CATEGORY_SPACE: [(9, 13), (32, 32)],
}
_OPPOSITES: Final = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
}
_BEGINNINGS: Final = (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING)
_ENDS: Final = (ops.AT_END, ops.AT_END_STRING)
_EVERYTHING: Final = [(0, 0xD7FF), (0xE000, _LAST)]
#: what a text of JSON holds without an escape
IN_JSON: Final = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, _LAST)]
_BLANKS: Final = [(9, 10), (13, 13), (32, 32)]

Ranges = list[tuple[int, int]]


def whole_text(pattern: str) -> str:
    """Return an expression of the texts that a pattern matches from beginning to end."""
    return _Writer(_EVERYTHING, is_search=False).write(pattern)


def in_json_text(pattern: str) -> str:
    """Return an expression of the texts in which a pattern is found.

    Of those, the ones that JSON writes without an escape.
    """
    return _Writer(IN_JSON, is_search=True).write(pattern)


def between_json(pattern: str) -> str:
    """Return an expression of the blanks of JSON that a pattern matches from beginning to end.

    Raises GrammarError where a part of it matches none.
    """
    return _Writer(_BLANKS, is_search=False).write(pattern)


class _Writer:
    """Writes what was parsed. `ranges` are the characters that there may be at all."""

    def __init__(self, ranges: Ranges, *, is_search: bool) -> None:
        self._ranges = ranges
        self._is_search = is_search

    def write(self, pattern: str) -> str:
        """Return the expression written anew. Raises GrammarError."""
        if _SETS.search(pattern):
            raise _refused("brackets inside of brackets")
        try:
            parsed = _parser.parse(pattern)
        except (re.error, OverflowError) as error:
            raise GrammarError("the regular expression is not valid", str(error)) from error
        except RecursionError as error:
            raise GrammarError("the regular expression is nested too deeply") from error
        if parsed.state.flags & ~re.UNICODE:
            raise _refused("flags such as (?i)")
        try:
            return self._whole(list(parsed))
        except RecursionError as error:
            raise GrammarError("the regular expression is nested too deeply") from error

    def _whole(self, sequence: list[Any]) -> str:
        """Write what has anchors at its ends, if anywhere, or alternatives that have."""
        if len(sequence) == 1 and sequence[0][0] is ops.BRANCH:
            return "|".join(f"(?:{self._whole(list(one))})" for one in sequence[0][1][1])
        is_begun = is_ended = False
        while sequence and sequence[0][0] is ops.AT and sequence[0][1] in _BEGINNINGS:
            is_begun, sequence = True, sequence[1:]
        while sequence and sequence[-1][0] is ops.AT and sequence[-1][1] in _ENDS:
            is_ended, sequence = True, sequence[:-1]
        inner = self._sequence(sequence)
        if self._is_search:
            anything = f"{brackets(self._ranges)}*"
            inner = f"{'' if is_begun else anything}{inner}{'' if is_ended else anything}"
        return inner

    def _sequence(self, sequence: Any) -> str:
        return "".join(self._part(*part) for part in sequence)

    def _part(self, op: Any, value: Any) -> str:
        match op:
            case ops.LITERAL:
                return self._class([(value, value)])
            case ops.NOT_LITERAL:
                return self._class(_others([(value, value)]))
            case ops.ANY:
                return self._class(_others([(10, 10)]))
            case ops.IN:
                return self._class(_members(value))
            case ops.BRANCH:
                return f"(?:{'|'.join(self._sequence(one) for one in value[1])})"
            case ops.SUBPATTERN if not (value[1] or value[2]):
                return f"(?:{self._sequence(value[3])})"
            case ops.MAX_REPEAT | ops.MIN_REPEAT:
                low, high, inner = value
                most = "" if high is ops.MAXREPEAT else int(high)
                return f"(?:{self._sequence(inner)}){{{low},{most}}}"
        raise _refused(f"what re calls {str(op).lower()}")

    def _class(self, ranges: Ranges) -> str:
        ranges = _common(ranges, self._ranges)
        if not ranges:
            raise GrammarError("no text has this form", "a part of it matches no character")
        return brackets(ranges)


def _members(items: list[tuple[Any, Any]]) -> Ranges:
    """Return the characters in brackets."""
    is_negated, found = False, Ranges()
    for op, value in items:
        match op:
            case ops.NEGATE:
                is_negated = True
            case ops.LITERAL:
                found.append((value, value))
            case ops.RANGE:
                found.append(value)
            case ops.CATEGORY if value in _CLASSES:
                found += _CLASSES[value]
            case ops.CATEGORY if value in _OPPOSITES:
                found += _others(_CLASSES[_OPPOSITES[value]])
            case _:
                raise _refused(f"what re calls {str(op).lower()}")
    return _others(found) if is_negated else found


def _others(ranges: Ranges) -> Ranges:
    """Return all characters that are in none of the ranges."""
    found, start = Ranges(), 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _LAST:
        found.append((start, _LAST))
    return found


def _common(ranges: Ranges, others: Ranges) -> Ranges:
    pairs = ((max(a, c), min(b, d)) for a, b in ranges for c, d in others)
    return [(low, high) for low, high in pairs if low <= high]


def brackets(ranges: Ranges) -> str:
    """Write characters as a class in brackets."""
    parts = (_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in ranges)
    return f"[{''.join(parts)}]"


def _char(code: int) -> str:
    """Write a character inside of brackets; letters and digits have no other meaning there."""
    char = chr(code)
    if code >= 0x80 or char.isalnum():  # noqa: PLR2004 - the end of ASCII
        return char if not 0xD800 <= code <= 0xDFFF else _refuse_surrogate()  # noqa: PLR2004
    return f"\\u{code:04x}"


def _refuse_surrogate() -> str:
    raise _refused("half a surrogate pair")


def _refused(what: str) -> GrammarError:
    return GrammarError(f"the regular expression has {what}, which is not supported here")
