"""The base of readers of calls that are written as JSON objects with a name and arguments.

Knows such objects and lists of them. Does not know the marks around them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from octavo.text.json_machine import JsonMachine
from octavo.text.turn_scanner import TurnScanner
from octavo.text.turn_teller import MalformedError

if TYPE_CHECKING:
    from collections.abc import Generator

    from octavo.text.turn_scanner import Reads, Script


class CallScanner(TurnScanner):
    """Reads `{"name": ..., "arguments": ...}`, with its keys in any order.

    Arguments are said while they come where the name stands before them. They may also be a text
    that holds a JSON object, or be left out.
    """

    #: what else a call may begin with, beside these
    first_keys: ClassVar[frozenset[str]] = frozenset({"type", "id"})
    #: keys under which families write the arguments, and the name
    argument_keys: ClassVar[frozenset[str]] = frozenset({"arguments", "parameters"})
    name_key: ClassVar[str] = "name"

    def call_object(self) -> Script:
        """Read one call."""
        yield from self.expect("{")
        is_said = False
        name, text = "", "{}"
        is_empty = bool((yield from self.take("}")))
        is_first = True
        while not is_empty:
            key = yield from self._key()
            if is_first and key not in {self.name_key, *self.argument_keys, *self.first_keys}:
                raise MalformedError  # some other JSON, which nobody should wait for
            is_first = False
            if key in self.argument_keys and not is_said:
                is_object = yield from self._is_object_next()
                if name and is_object:
                    yield from self.arguments(name)
                    is_said = True
                else:
                    text = _object_text((yield from self.json_value()))
            else:
                value = yield from self.json_value()
                name = _name(value) if key == self.name_key and not is_said else name
            if (yield from self.expect(",", "}")) == "}":
                break
        if not is_said:
            self.say_call(name, text)
        self.settle()

    def call_list(self) -> Script:
        """Read a list of calls, which may be empty."""
        yield from self.expect("[")
        if (yield from self.take("]")):
            self.settle()
            return
        while True:
            yield from self.call_object()
            if (yield from self.expect(",", "]")) == "]":
                self.settle()
                return

    def _key(self) -> Reads:
        text = yield from self.json_value()
        if not text.startswith('"'):
            raise MalformedError
        yield from self.expect(":")
        key: str = json.loads(text)
        return key

    def _is_object_next(self) -> Generator[None, None, bool]:
        yield from self.skip_space()
        return self.next_char == "{"


def _name(text: str) -> str:
    name = json.loads(text)
    if not isinstance(name, str):
        raise MalformedError
    return name


def _object_text(text: str) -> str:
    """Return the JSON object that a value is, or that it holds as a text; `{}` for nothing."""
    value = json.loads(text)
    if isinstance(value, str):
        machine = JsonMachine()
        given = value.strip() or "{}"
        text, end = machine.run(given, 0)
        value = {} if machine.is_complete and end == len(given) and text[0] == "{" else text
    if value is None:
        return "{}"
    if not isinstance(value, dict):
        raise MalformedError
    return text
