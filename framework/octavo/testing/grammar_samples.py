"""Forms, texts that have them, and texts that do not: what the kit tries grammar back ends on.

Knows what each form means, by definitions of its own. Does not know back ends.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from octavo.interfaces.grammar import GrammarSpec
from octavo.structural_tags import plain_tags

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Sample:
    """A form. `holds` tells whether a text has it; `good` are accepted by every back end.

    JSON can be laid out in many ways, of which a back end may allow some: only where `is_exact`
    is every text accepted that has the form. `is_free`: there may be bytes that are no characters.
    """

    spec: GrammarSpec
    good: tuple[str, ...]
    bad: tuple[str, ...]
    holds: Callable[[str], bool]
    is_exact: bool = True
    is_free: bool = False


def _of_regex(pattern: str, good: tuple[str, ...], bad: tuple[str, ...]) -> Sample:
    matches = re.compile(pattern, re.ASCII).fullmatch
    return Sample(GrammarSpec("regex", pattern), good, bad, lambda text: matches(text) is not None)


def _of_schema(schema: dict[str, Any], good: tuple[str, ...], bad: tuple[str, ...]) -> Sample:
    spec = GrammarSpec("json_schema", json.dumps(schema))
    return Sample(spec, good, bad, lambda text: _is_json_of(schema, text), is_exact=False)


def _is_json_of(schema: dict[str, Any], text: str) -> bool:
    try:
        return holds(schema, json.loads(text))
    except ValueError:
        return False


def holds(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a value is of a schema: of the keywords that the samples have."""
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(holds(one, value) for one in schema["anyOf"])
    match schema.get("type"):
        case "object":
            return isinstance(value, dict) and _is_object_of(schema, value)
        case "array":
            return (
                isinstance(value, list)
                and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
                and all(holds(schema.get("items", {}), one) for one in value)
            )
        case "string":
            return (
                isinstance(value, str)
                and re.search(schema.get("pattern", ""), value, re.ASCII) is not None
                and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
            )
        case "integer":
            low, high = schema.get("minimum", -(10**99)), schema.get("maximum", 10**99)
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            return is_whole and low <= value <= high
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
    return True


def _is_object_of(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    is_closed = schema.get("additionalProperties") is False
    return (
        all(name in value for name in schema.get("required", ()))
        and all(holds(known[name], one) for name, one in value.items() if name in known)
        and not (is_closed and set(value) - set(known))
    )


_ORDER: Final = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["hello one", "hello two", 3, None]},
        "qty": {"type": "integer", "minimum": 1, "maximum": 250},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-c]{1,3}$"},
                 "minItems": 1, "maxItems": 2},
        "rest": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
    },
    "required": ["title", "kind", "qty", "tags"],
    "additionalProperties": False,
}  # fmt: skip
_TREE: Final = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["id", "next"],
            "additionalProperties": False,
        }
    },
}
_CALL: Final = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
_TAGS: Final = {
    "structures": [
        {"begin": "<f=one>", "schema": _CALL, "end": "</f>"},
        {"begin": "<f=two>", "schema": {"enum": ["stop"]}, "end": "</f>"},
    ],
    "triggers": ["<f="],
}


def _is_tree(text: str) -> bool:
    def is_node(value: Any) -> bool:
        shape = {"type": "object", "properties": {"id": {"type": "integer"}, "next": {}}}
        is_one = holds({**shape, "required": ["id", "next"], "additionalProperties": False}, value)
        return is_one and (value["next"] is None or is_node(value["next"]))

    try:
        return is_node(json.loads(text))
    except ValueError:
        return False


def _is_tagged(text: str) -> bool:
    """Return whether each `<f=` of a text begins a whole tag."""
    rest = text
    while "<f=" in rest:
        rest = rest[rest.index("<f=") :]
        found = re.match(r"<f=(one|two)>(.*?)</f>", rest, re.DOTALL)
        if found is None:
            return False
        schema = _CALL if found[1] == "one" else {"enum": ["stop"]}
        if not _is_json_of(schema, found[2]):
            return False
        rest = rest[found.end() :]
    return True


def _is_nested(text: str) -> bool:
    """Return whether a text is `nested: "(" nested ")" | digits`."""
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return re.fullmatch("[0-9]+", text) is not None


_GOOD_NESTED: Final = ("7", "(12)", "((3))")
_BAD_NESTED: Final = ("", "(", "()", "(1", "1)", "((1)", "x", "(1)2")
_GOOD_ORDERS: Final = (
    '{"title":"abc","kind":"hello one","qty":12,"tags":["ab"]}',
    '{"title":"","kind":3,"qty":250,"tags":["a","cba"],"rest":true}',
    '{"title":"é漢","kind":null,"qty":1,"tags":["c"],"rest":null}',
)
_BAD_ORDERS: Final = (
    '{"title":"toolong","kind":3,"qty":1,"tags":["a"]}',
    '{"title":"a","kind":4,"qty":1,"tags":["a"]}',
    '{"title":"a","kind":3,"qty":0,"tags":["a"]}',
    '{"title":"a","kind":3,"qty":251,"tags":["a"]}',
    '{"title":"a","kind":3,"qty":1.5,"tags":["a"]}',
    '{"title":"a","kind":3,"qty":1,"tags":[]}',
    '{"title":"a","kind":3,"qty":1,"tags":["d"]}',
    '{"title":"a","kind":3,"qty":1,"tags":["a"],"more":1}',
    '{"title":"a\nb","kind":3,"qty":1,"tags":["a"]}',
    '{"title":"a","kind":3,"qty":1}',
    '{"title":"a","kind":3,"qty":1,"tags":["a"]',
    "[]",
)

SAMPLES: Final = (
    _of_regex("[0-9]{4}", ("1234", "0000"), ("123", "12345", "12a4", "")),
    _of_regex("hello( one| two)*", ("hello", "hello one two two"), ("hell", "hello ", "hello on")),
    _of_regex("(a|b)*abb", ("abb", "aabb", "babb"), ("ab", "abba", "")),
    _of_regex("[^a]+|é", ("é", "漢b", "\n"), ("a", "ba", "")),
    Sample(
        GrammarSpec("choice", '["A", "AB", "a.b", "x\\ny", "hello one"]'),
        ("A", "AB", "a.b", "x\ny", "hello one"),
        ("", "B", "axb", "ABC", "hello"),
        {"A", "AB", "a.b", "x\ny", "hello one"}.__contains__,
    ),
    Sample(
        GrammarSpec("gbnf", 'root ::= "(" root ")" | digits\ndigits ::= [0-9]+'),
        _GOOD_NESTED, _BAD_NESTED, _is_nested,
    ),
    Sample(
        GrammarSpec("lark", 'start: "(" start ")" | DIGITS\nDIGITS: /[0-9]+/'),
        _GOOD_NESTED, _BAD_NESTED, _is_nested,
    ),
    _of_schema(_ORDER, _GOOD_ORDERS, _BAD_ORDERS),
    Sample(
        GrammarSpec("json_schema", json.dumps(_TREE)),
        ('{"id":1,"next":null}', '{"id":-2,"next":{"id":3,"next":null}}'),
        ('{"id":1}', '{"id":1,"next":{}}', '{"id":1,"next":{"id":2}}', "null"),
        _is_tree, is_exact=False,
    ),
    Sample(
        GrammarSpec("json_object"),
        ("{}", '{"a":[1,{"b":null}],"c":"d"}'),
        ("[]", "1", '{"a"}', '{"a":1', "{a:1}"),
        lambda text: _is_json_of({"type": "object"}, text), is_exact=False,
    ),
    Sample(
        GrammarSpec("json_object", "", ""),
        ("{}", '{"a":[1,2]}'),
        ('{"a": [1,2]}', "{ }"),
        lambda text: _is_json_of({"type": "object"}, text), is_exact=False,
    ),
    Sample(
        GrammarSpec("structural_tag", plain_tags(_TAGS)),
        ("", "hello <f", 'so <f=one>{"x":4}</f> and <f=two>"stop"</f>\n'),
        ("<f=", "<f=three>", '<f=one>{"x":"4"}</f>', '<f=one>{"x":4}', "a <f=x"),
        _is_tagged, is_exact=False, is_free=True,
    ),
)  # fmt: skip
