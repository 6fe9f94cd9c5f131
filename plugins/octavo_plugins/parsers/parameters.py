"""The base of families that write arguments one by one, each as text between marks.

Texts become JSON by the types that the tool's schema gives: a string goes out while it comes, any
other value when it is complete. What the schema does not tell, or is not what it tells, is JSON
where it can be, and else a string.

Knows schemas' types. Does not know any family's marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.text.json_machine import JsonMachine
from octavo.text.turn_scanner import TurnScanner
from octavo.text.turn_teller import MalformedError, compact_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.parser import TurnContext
    from octavo.text.marks import Marks
    from octavo.text.turn_scanner import Script

#: values of Python that models write where JSON's are meant
_PYTHON = {"True": "true", "False": "false", "None": "null"}


class ParameterScanner(TurnScanner):
    """Reads calls argument by argument: `begin_once`, `parameter` for each, `end_parameters`."""

    def __init__(self, context: TurnContext) -> None:
        super().__init__(context)
        self._keys: set[str] = set()
        self._properties: dict[str, Any] = {}

    def begin_once(self, name: str) -> None:
        """Say that a call begins, where it has not. Raises MalformedError for an unknown tool."""
        if not self.is_in_call:
            self.begin(name)
            properties = self.tools[name].parameters.get("properties")
            self._properties = properties if isinstance(properties, dict) else {}
            self._keys = set()

    def parameter(self, key: str, ends: Marks) -> Script:
        """Read the value of an argument up to one of the marks. Raises MalformedError."""
        if key in self._keys:
            raise MalformedError  # JSON has no two of one name
        self.argue(f"{', ' if self._keys else '{'}{compact_json(key)}: ")
        self._keys.add(key)
        kinds = set(types_of(self._properties.get(key)))
        if kinds == {"string"}:
            self.argue('"')
            yield from self.pass_until(ends, lambda piece: self.argue(compact_json(piece)[1:-1]))
            self.argue('"')
            return
        parts: list[str] = []
        yield from self.pass_until(ends, parts.append)
        self.argue(value_of("".join(parts), kinds))

    def end_parameters(self) -> None:
        """Say that the call is complete."""
        self.argue("}" if self._keys else "{}")
        self.end()


def types_of(schema: Any) -> Iterator[str]:
    """Yield the types that a schema allows; none where it does not say."""
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type", ())
    yield from (kinds,) if isinstance(kinds, str) else kinds
    for keyword in ("anyOf", "oneOf"):
        for one in schema.get(keyword, ()):
            yield from types_of(one)
    if "enum" in schema and not kinds:
        yield from ("string" for one in schema["enum"] if isinstance(one, str))


def value_of(text: str, kinds: set[str]) -> str:
    """Return the JSON of a text that stands for a value of one of these types."""
    plain = _PYTHON.get(text.strip(), text.strip())
    machine = JsonMachine()
    # a number ends where something follows
    value, end = machine.run(f"{plain} ", 0)
    is_json = machine.is_complete and end >= len(plain) and bool(plain)
    if is_json and (not kinds or _type_of(plain) in kinds):
        return value.strip()
    if is_json and "string" not in kinds:
        return value.strip()
    return compact_json(text)


def _type_of(text: str) -> str:
    """Return the type of a JSON value."""
    first = text[0]
    if first in '{["tfn':
        return {
            "{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"
        }[first]  # fmt: skip
    return "number" if set(text) & set(".eE") else "integer"
