"""Grammars that a back end must refuse, or hold to, or at least come to an end with.

Knows what they say. Does not know back ends.
"""

from __future__ import annotations

import json
from typing import Any, Final

from octavo.interfaces.grammar import GrammarSpec

#: each with a text that it forbids: who does not know the keyword must refuse the schema
FORBIDDING: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"not": {"type": "integer"}}, "1"),
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1,1]"),
    ({"type": "array", "contains": {"type": "null"}}, "[1]"),
    ({"type": "string", "pattern": "^a+$", "maxLength": 2}, '"aaa"'),
    ({"type": "string", "pattern": "^(?=b)a$"}, '"a"'),
    ({"type": "string", "minLength": 2, "maxLength": 3}, '"\t\t"'),
    ({"type": "string", "format": "ipv4"}, '"x"'),
    ({"type": "string", "format": "no-such-format"}, '"x"'),
    ({"type": "integer", "enum": ["a", 1]}, '"a"'),
    ({"type": "integer", "multipleOf": 3}, "4"),
    ({"type": "integer", "multipleOf": 5000}, "4"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}], "minimum": 3}, "1"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1"),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "1"),
    ({"$ref": "#/$defs/n", "minimum": 4, "$defs": {"n": {"type": "integer"}}}, "3"),
    ({"if": {"type": "integer"}, "then": {"minimum": 3}}, "1"),
    ({"type": "object", "required": ["a"]}, "{}"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, '{"a":1}'),
    ({"type": "object", "propertyNames": {"pattern": "^a$"}}, '{"b":1}'),
    ({"type": "object", "patternProperties": {"^x": {"type": "null"}}}, '{"x":1}'),
    ({"type": "object", "minProperties": 1}, "{}"),
    ({"type": "object", "minProperties": 2}, '{"a":1,"a":2}'),
    ({"type": "object", "properties": {"a": {"type": "null"}}}, '{"\\u0061":1}'),
    ({"type": "object", "properties": {'"': {"type": "null"}}}, '{"\\"":1}'),
    ({"type": "object", "patternProperties": {"^x": {"type": "null"}}}, '{"\\u0078":1}'),
    ({"type": "number", "multipleOf": 3}, "4"),
    ({"type": "integer", "minimum": 10**20}, "9223372036854775807"),
    ({"type": "integer", "const": 10**20}, "9223372036854775807"),
    ({"type": "string", "maxLength": 1}, '"\n"'),
    ({"type": "string", "maxLength": 1}, '"\\u0061b"'),
    ({"$ref": "https://example.org/schema"}, "1"),
)

#: what no back end can hold to
IMPOSSIBLE: Final = (
    GrammarSpec("json_schema", "{"),
    GrammarSpec("json_schema", "[1]"),
    GrammarSpec("json_schema", '{"type": "notatype"}'),
    GrammarSpec("json_schema", '{"$ref": "#/nope"}'),
    GrammarSpec("json_schema", '{"$ref": "#"}'),
    GrammarSpec("regex", "["),
    GrammarSpec("regex", r"(a)\1"),
    GrammarSpec("regex", r"a[^\s\S]"),
    GrammarSpec("choice", "[]"),
    GrammarSpec("choice", "[1]"),
    GrammarSpec("choice", "a"),
    GrammarSpec("gbnf", "root ::= nothing"),
    GrammarSpec("gbnf", 'root ::= "a'),
    GrammarSpec("gbnf", "root ::= <[5]>"),
    GrammarSpec("lark", "start: nothing"),
    GrammarSpec("lark", "start: <[5]>"),
)


def _deep(num_levels: int) -> str:
    """Return a schema of arrays in arrays, as text: it need not fit Python's own stack."""
    return '{"type":"array","items":' * num_levels + "{}" + "}" * num_levels


def _chain(num_links: int) -> str:
    links = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(num_links)}
    last = {f"d{num_links}": {"type": "integer"}}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": links | last})


#: they need much time, memory or stack to be compiled
HOSTILE: Final = (
    GrammarSpec("json_schema", _deep(5000)),
    GrammarSpec("json_schema", _chain(3000)),
    GrammarSpec("json_schema", '{"type": "integer", "multipleOf": 99999989}'),
    GrammarSpec("regex", "(" * 3000 + "a" + ")" * 3000),
    GrammarSpec("regex", "((a{1,500}){1,500}){1,500}"),
    GrammarSpec("gbnf", "root ::= " + "(" * 3000 + '"a"' + ")" * 3000),
    GrammarSpec("lark", "start: " + "(" * 3000 + '"a"' + ")" * 3000),
)
