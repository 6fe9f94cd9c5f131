"""Calls as Llama 4 writes them: a list of calls of functions in Python, with keywords alone.

Source: the chat template of meta-llama/Llama-4-Scout-17B-16E-Instruct. Knows Python's literals.
Does not run anything: what is no literal is no call.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Example,
    TurnContext,
)
from octavo.text.marks import Marks
from octavo.text.turn_scanner import MAX_HEAD_CHARS, TurnScanner
from octavo.text.turn_teller import MalformedError, compact_json
from octavo_plugins.parsers.family import WITH_TOOLS, Family, calling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.text.turn_scanner import Reads, Script

START, END = "<|python_start|>", "<|python_end|>"
_STARTS = Marks(START)
_NAME = re.compile(r"[A-Za-z_][\w.:/-]*")
#: brackets within brackets; more of them are no arguments
_MAX_DEPTH = 40
_WORDS: Mapping[str, Any] = MappingProxyType({"true": True, "false": False, "null": None})
_OPENING, _CLOSING = "([{", ")]}"


class Llama4Pythonic(Family):
    """The list is a turn's beginning, or stands between marks."""

    visible_markers = frozenset({START, END})
    template_has: ClassVar = ("func_name1(", "<|eot|>")

    def open(self, context: TurnContext) -> PythonicTurn:
        """Return a reader for one turn."""
        return PythonicTurn(context)

    def examples(self) -> Sequence[Example]:
        """Return a list, one with marks, a text that looks like one, and values of all kinds."""
        calls = "[get_weather(city='Ærø', days=2), get_time()]"
        note, unnamed = "[1] says so.", "[get_weather('Oslo')]"
        quoted = """[get_weather(city="It's :) [\\"", days=-2, at=[1.5, None, {'a': (True,)}])]"""
        arguments = '{"city": "It\'s :) [\\"", "days": -2, "at": [1.5, null, {"a": [true]}]}'
        words = "[get_weather(city='Oslo', at=[true, false, null])]"
        other = '{"city": "Oslo", "at": [true, false, null]}'
        return [
            calling(calls),
            calling(f"Look. {START}{calls}{END}", Content("Look. ")),
            Example(WITH_TOOLS, note, [Content(note)]),
            Example(WITH_TOOLS, unnamed, [Content(unnamed)]),
            *(
                Example(WITH_TOOLS, text, [CallBegin(0, "get_weather"), said, CallEnd(0)])
                for text, said in (
                    (quoted, CallArguments(0, arguments)),
                    (words, CallArguments(0, other)),
                )
            ),
        ]


class PythonicTurn(TurnScanner):
    """Reads one turn; a call is told when its last bracket has come."""

    has_begun = False

    def read(self) -> Script:
        """Read the list at the beginning, or the one behind a mark."""
        if not self.has_begun:
            self.has_begun = True
            yield from self.skip_space()
            if self.next_char == "[":
                yield from self._calls()
            self.release()
        yield from self.say_until(_STARTS)
        yield from self._calls()

    def _calls(self) -> Script:
        yield from self.expect("[")
        while True:
            name = yield from self._name()
            source = yield from self.hold_while(_Brackets().goes_on, None)
            yield from self.expect(")")
            self.say_call(name, arguments_of(source))
            if (yield from self.expect(",", "]")) == "]":
                break
        self.settle()
        yield from self.close(END)

    def _name(self) -> Reads:
        yield from self.skip_space()
        name = yield from self.hold_while(_is_of_name, MAX_HEAD_CHARS)
        yield from self.expect("(")
        if not _NAME.fullmatch(name):
            raise MalformedError
        return name


class _Brackets:
    """Tells where the brackets of a call, of which the first is open, are all closed."""

    def __init__(self) -> None:
        self._open = ["("]
        self._quote = ""
        self._is_escaped = False

    def goes_on(self, char: str) -> bool:
        """Return whether a character belongs to the call. Raises MalformedError."""
        if self._quote:
            is_end = char == self._quote and not self._is_escaped
            self._is_escaped = char == "\\" and not self._is_escaped
            self._quote = "" if is_end else self._quote
        elif char in "'\"":
            self._quote = char
        elif char in _OPENING:
            self._open.append(char)
        elif char in _CLOSING and _OPENING[_CLOSING.index(char)] != self._open.pop():
            raise MalformedError
        if len(self._open) > _MAX_DEPTH:
            raise MalformedError
        return bool(self._open)


def _is_of_name(char: str) -> bool:
    return char.isalnum() or char in "_.:/-"


def arguments_of(source: str) -> str:
    """Return the arguments of a call, without its last bracket, as JSON. Raises MalformedError."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            call = ast.parse(f"f({source})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError from error
    if not isinstance(call, ast.Call) or call.args:
        raise MalformedError
    values = {keyword.arg or "": _value(keyword.value) for keyword in call.keywords}
    if "" in values:
        raise MalformedError
    return compact_json(values)


def _value(node: ast.expr | None) -> Any:
    """Return the value of a literal, with JSON's words for Python's."""
    match node:
        case ast.Constant(value=str() | int() | None as value):
            return value
        case ast.Constant(value=float() as value) if math.isfinite(value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -_value(node.operand)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(one) for one in elements]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(one) for key, one in zip(keys, values, strict=True)}
        case ast.Name(id=name) if name in _WORDS:
            return _WORDS[name]
    raise MalformedError


def _key(node: ast.expr | None) -> str:
    key = _value(node)
    if not isinstance(key, str):
        raise MalformedError
    return key
