"""Calls that a request requires: the form that a grammar holds the answer to, and its reader.

The form is the same for all families of models: a list of objects with name and parameters, or
the parameters of the one tool that was named.

Knows JSON schemas of tools. Does not know grammars, or how a family writes calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.call_scanner import CallScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.parser import Parser, ToolSpec, TurnContext
    from octavo.text.turn_scanner import Script

_DEFINITIONS = ("$defs", "definitions")
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def named_form(tool: ToolSpec) -> StructuredOutputsParams:
    """Return the form of the arguments of one tool. Raises RequestError for a bad schema."""
    return _form(dict(tool.parameters) or dict(_ANY_OBJECT))


def required_form(tools: Sequence[ToolSpec], *, is_parallel: bool) -> StructuredOutputsParams:
    """Return the form of one call or more, of any of the tools. Raises as `named_form`."""
    schema = _list_schema(tools, "parameters")
    return _form(schema if is_parallel else schema | {"maxItems": 1})


def strict_form(
    parser: Parser | None, tools: Sequence[ToolSpec], special_ids: Mapping[str, int]
) -> StructuredOutputsParams | None:
    """Return the form of calls that begin at the family's own mark, where a tool is strict.

    Text is free but for calls. None where no tool is strict, the family writes arguments in
    another way than as JSON, or some of its marks are special tokens and others are not, or a
    call begins with more than its mark. Raises as `named_form`.
    """
    if parser is None or not any(tool.is_strict for tool in tools):
        return None
    structures, triggers = _strict_tags(parser, tools)
    marks = "".join(one["begin"] + one["end"] for one in structures)
    special = {text: one for text, one in special_ids.items() if text and text in marks}
    own = {mark for mark in parser.visible_markers if mark in marks}
    if not structures or (special and not own | {*triggers} <= special.keys()):
        return None
    return StructuredOutputsParams(
        structural_tag={
            "structures": structures,
            "triggers": triggers,
            "special_tokens": special,
        }
    )


def _strict_tags(
    parser: Parser, tools: Sequence[ToolSpec]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return how calls are written and what arms them; nothing where it is not as JSON."""
    loose = [
        replace(one, parameters=(one.is_strict and one.parameters) or _ANY_OBJECT) for one in tools
    ]
    if (whole := parser.list_tag()) is not None:
        schema = _list_schema(loose, whole.arguments_key)
        return [{"begin": whole.begin, "schema": schema, "end": whole.end}], [whole.begin]
    tags = [tag for tool in tools if (tag := parser.call_tag(tool)) is not None]
    if len(tags) < len(tools):
        return [], []
    structures = [
        {"begin": begin, "schema": dict(tool.parameters), "end": tag.end}
        for tool, tag in zip(loose, tags, strict=True)
        for begin in (tag.begin, *tag.others)
    ]
    return structures, list(dict.fromkeys(tag.trigger for tag in tags))


def _list_schema(tools: Sequence[ToolSpec], key: str) -> dict[str, Any]:
    """Return the schema of a list of calls; `key` is how their arguments are called."""
    definitions: dict[str, Any] = {}
    calls = [_call_schema(i, tool, key, definitions) for i, tool in enumerate(tools)]
    schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    return schema | {"$defs": definitions} if definitions else schema


def _form(schema: dict[str, Any]) -> StructuredOutputsParams:
    # tools take the arguments that they list: a small model would go on inventing others
    return StructuredOutputsParams(json=schema, disable_additional_properties=True)


def _call_schema(
    index: int, tool: ToolSpec, key: str, definitions: dict[str, Any]
) -> dict[str, Any]:
    """Return the schema of one call; what its parameters define is moved to `definitions`."""
    schema = dict(tool.parameters) or dict(_ANY_OBJECT)
    prefix = f"#/$defs/tool{index}."
    own = {
        f"#/{key}/{name}": value
        for key in _DEFINITIONS
        for name, value in dict(schema.pop(key, None) or {}).items()
    }
    places = {place: prefix + place.rpartition("/")[2] for place in own}
    if _refers_to_itself(tool.parameters):
        own["#"], places["#"] = schema, f"{prefix}whole"
    for place, value in own.items():
        definitions[places[place].rpartition("/")[2]] = _with_places(value, places)
    return {
        "type": "object",
        "properties": {
            "name": {"const": tool.name},
            key: _with_places(schema, places),
        },
        "required": ["name", key],
        "additionalProperties": False,
    }


def _refers_to_itself(schema: Any) -> bool:
    """Return whether a schema refers to itself as a whole."""
    if isinstance(schema, list):
        return any(map(_refers_to_itself, schema))
    if not isinstance(schema, Mapping):
        return False
    return schema.get("$ref") == "#" or any(map(_refers_to_itself, schema.values()))


def _with_places(schema: Any, places: Mapping[str, str]) -> Any:
    """Return a schema whose references lead to where their definitions are now."""
    if isinstance(schema, list):
        return [_with_places(one, places) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _moved(value, places)
        if key == "$ref" and isinstance(value, str)
        else _with_places(value, places)
        for key, value in schema.items()
    }


def _moved(reference: str, places: Mapping[str, str]) -> str:
    for place, moved in places.items():
        if reference == place or (place != "#" and reference.startswith(f"{place}/")):
            return moved + reference.removeprefix(place)
    return reference


class HeldCalls(CallScanner):
    """A text that a grammar holds to its form: the beginning of one is no content, where it ends.

    A limit of tokens may end it anywhere. Behind it, or behind what is none, all is content.
    """

    has_begun = False

    def read(self) -> Script:
        """Read the whole turn."""
        if not self.has_begun:
            self.has_begun = True
            yield from self.read_form()
        yield from self.rest()

    @abstractmethod
    def read_form(self) -> Script:
        """Read what the grammar held the text to."""

    def cut_off(self) -> None:
        """Say nothing of what is held."""
        self.settle()


class RequiredCalls(HeldCalls):
    """Reads a list of calls, and nothing beside it but white space."""

    def read_form(self) -> Script:
        """Read the list."""
        yield from self.call_list()


class NamedCall(HeldCalls):
    """Reads the arguments of one tool as its call."""

    def __init__(self, context: TurnContext, name: str) -> None:
        super().__init__(context)
        self._name = name

    def read_form(self) -> Script:
        """Read the object."""
        yield from self.arguments(self._name)

    def cut_off(self) -> None:
        """Say what is held of the arguments, where no more came of the call."""
        begun = "".join(self._held).strip()
        if begun and not self.is_in_call and not self._num_calls:
            self.begin(self._name)
            self.argue(begun)
        super().cut_off()
