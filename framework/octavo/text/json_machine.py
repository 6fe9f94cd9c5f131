"""Follows one JSON value while its text comes, and says where it ends or breaks.

Knows JSON's grammar. Does not know what a value means, or parsers.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto

SPACE = " \t\n\r"
#: what stands in a string as it is
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_LITERAL_CHARS = frozenset("+-.0123456789eEtrufalsn")
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_LITERAL = re.compile(rf"true|false|null|{_NUMBER}")
_LITERAL_BEGUN = re.compile(
    r"t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
    r"|-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?"
)
#: longer numbers, and deeper values, are those of a model that runs wild; readers refuse them
_MAX_LITERAL_CHARS = 400
_MAX_DEPTH = 100
_HEX = frozenset("0123456789abcdefABCDEF")
_NUM_HEX = 4


class _Expects(Enum):
    """What may come next."""

    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    LITERAL = auto()


class JsonMachine:
    """Reads one value. What it returned, joined, is always the beginning of valid JSON.

    Control characters within strings, which JSON forbids and models write, are returned as their
    escapes; all else is returned as it was written. A value that is not in brackets or quotes
    ends before the first character that is not its own.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self.is_broken = False
        self._open: list[str] = []
        self._expects = _Expects.VALUE
        self._is_key = False
        self._literal = ""
        self._num_hex = 0

    def run(self, text: str, at: int) -> tuple[str, int]:
        """Return what is valid of `text` from `at` on, and where the machine stopped.

        It stops at the end of the text, after the value, or before the character that breaks it.
        """
        parts: list[str] = []
        while at < len(text) and not self.is_complete and not self.is_broken:
            if self._expects is _Expects.STRING and (plain := _PLAIN.match(text, at)):
                parts.append(plain.group())
                at = plain.end()
                continue
            char = text[at]
            if self._expects is _Expects.LITERAL and char not in _LITERAL_CHARS:
                self._end_literal()
                continue
            if self._expects is _Expects.STRING and char < " ":
                parts.append(json.dumps(char)[1:-1])
            elif self._takes(char):
                parts.append(char)
            else:
                self.is_broken = True
                break
            at += 1
        return "".join(parts), at

    def _takes(self, char: str) -> bool:
        """Return whether a character may come next, and expect what may follow it."""
        match self._expects:
            case _Expects.STRING:
                self._in_string(char)
                return True
            case _Expects.ESCAPE:
                self._expects = _Expects.HEX if char == "u" else _Expects.STRING
                self._num_hex = 0
                return char in '"\\/bfnrtu'
            case _Expects.HEX:
                self._num_hex += 1
                if self._num_hex == _NUM_HEX:
                    self._expects = _Expects.STRING
                return char in _HEX
            case _Expects.LITERAL:
                return self._goes_on(char)
        return char in SPACE or self._takes_mark(char)

    def _takes_mark(self, char: str) -> bool:
        expects = self._expects
        if expects is _Expects.COLON:
            self._expects = _Expects.VALUE
            return char == ":"
        if char in "}]" and char == self._closing() and expects in _MAY_END:
            self._open.pop()
            self._end_value()
            return True
        if expects is _Expects.COMMA_OR_END:
            self._expects = _Expects.KEY if self._closing() == "}" else _Expects.VALUE
            return char == ","
        if char == '"':
            self._is_key = expects in {_Expects.KEY, _Expects.KEY_OR_END}
            self._expects = _Expects.STRING
            return True
        return expects in {_Expects.VALUE, _Expects.VALUE_OR_END} and self._begins(char)

    def _begins(self, char: str) -> bool:
        """Return whether a value that is no string begins with a character."""
        if char in "{[":
            self._open.append(char)
            self._expects = _Expects.KEY_OR_END if char == "{" else _Expects.VALUE_OR_END
            return len(self._open) <= _MAX_DEPTH
        self._expects = _Expects.LITERAL
        self._literal = ""
        return self._goes_on(char)

    def _goes_on(self, char: str) -> bool:
        self._literal += char
        is_short = len(self._literal) <= _MAX_LITERAL_CHARS
        return is_short and _LITERAL_BEGUN.fullmatch(self._literal) is not None

    def _in_string(self, char: str) -> None:
        if char == "\\":
            self._expects = _Expects.ESCAPE
        elif self._is_key:
            self._expects = _Expects.COLON
        else:
            self._end_value()

    def _end_literal(self) -> None:
        if _LITERAL.fullmatch(self._literal):
            self._end_value()
        else:
            self.is_broken = True

    def _end_value(self) -> None:
        self._expects = _Expects.COMMA_OR_END
        self.is_complete = not self._open

    def _closing(self) -> str:
        """Return what closes the innermost bracket, "" outside of all."""
        return {"{": "}", "[": "]"}[self._open[-1]] if self._open else ""


_MAY_END = frozenset({_Expects.KEY_OR_END, _Expects.VALUE_OR_END, _Expects.COMMA_OR_END})
