"""JSON schemas drawn at random, values of them, and values that are nearly of them.

What is a value of a schema is decided by `jsonschema`. Knows the keywords that callers write, and
in which ways a value may be written so that every back end takes it: properties in the schema's
order, names and listed values without escapes, no escape in a text with a pattern or a length, and
numbers of few places. Does not know grammars.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import jsonschema

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

NAMES = ("a", "b", "name", "x y", 'q"\\', "é", "", "a/b", "$x", "aa")
TEXTS = ("", "a", "ab", "abc", "é", "😀", '"\\/', "a\nb", "\u0000", "2024-02-29", "x@y.org", "007")
PATTERNS = {
    "^[a-c]{1,3}$": ("a", "abc"), "b": ("b", "abc", "é b"), "^x|y$": ("xa", "ay"),
    r"^\d+$": ("0", "42"), r"^\w*\s?$": ("", "a_1 "), "^[^a]*$": ("", "bé"),
}  # fmt: skip
FORMATS = {
    "date": ("2024-02-29", "1999-12-31"), "email": ("x@y.org",), "ipv4": ("1.2.3.4",),
    "ipv6": ("::1", "2001:db8::1"), "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
}  # fmt: skip
#: keywords that a back end may not know, or may pass over beside others
RARE: dict[str, tuple[Any, ...]] = {
    "not": ({"type": "integer"}, {}, {"const": "a"}), "if": ({"type": "string"},),
    "then": ({"type": "null"},), "else": ({"maxLength": 1},), "contains": ({"type": "null"},),
    "minContains": (2,), "uniqueItems": (True, False), "propertyNames": ({"pattern": "^a"},),
    "dependentRequired": ({"a": ["b"]},), "dependentSchemas": ({"a": {"required": ["b"]}},),
    "unevaluatedProperties": (False,), "unevaluatedItems": (False,), "title": ("a", ),
    "patternProperties": ({"^a": {"type": "null"}}, {"": {}}), "minimum": (2,), "maxLength": (1,),
    "minItems": (2,), "maxProperties": (1,), "required": (["a"], ["more"]), "enum": ([1, "a", {}],),
    "anyOf": ([{"type": "string"}, {"maxLength": 1}],), "additionalProperties": (False,),
    "default": (None,), "items": ({"type": "null"}, True), "multipleOf": (4, 0.1),
    "format": ("ipv4", "no-such"), "const": (1, 0.1, 1e-7, "x"), "type": ("string", "object"),
    "minProperties": (1, 2), "properties": ({"a": {"type": "null"}, "b": {"minimum": 3}},),
}  # fmt: skip
LEAVES = ("string", "integer", "number", "boolean", "null", "enum", "const", "any")
BRANCHES = (
    "object",
    "object",
    "object",
    "array",
    "tuple",
    "anyOf",
    "oneOf",
    "allOf",
    "types",
    "$ref",
)
_MOST_ITEMS = 4


def schema_of(rng: random.Random) -> dict[str, Any]:
    """Return a schema; its references lead into `$defs`, and may come back to where they are."""
    defs = {name: _drawn(rng, 1, ()) for name in ("d", "list item")[: rng.randrange(3)]}
    schema = _drawn(rng, 3, tuple(defs))
    if defs and rng.random() < 0.3:
        link = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/d"}]}
        defs["d"] = {"type": "object", "properties": {"up": link}, "required": ["up"]}
    return schema | {"$defs": defs} if defs else schema


def is_of(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a value is of a schema, formats included."""
    cls = jsonschema.Draft202012Validator
    return bool(cls(schema, format_checker=cls.FORMAT_CHECKER).is_valid(value))


def values_of(schema: dict[str, Any], rng: random.Random, num: int) -> Iterator[Any]:
    """Yield some values that are of a schema, as far as drawing finds any."""
    for _ in range(num):
        value = _value(schema, schema, rng, 5)
        if is_of(schema, value):
            yield value


def changed(value: Any, rng: random.Random) -> Any:
    """Return a value that differs from another in one place."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        kind = rng.randrange(4)
        if kind == 0:
            return {key: one for key, one in value.items() if key != name}
        if kind == 1:
            return value | {rng.choice(NAMES): _any(rng)}
        return value | {name: changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        kind = rng.randrange(4)
        if kind < 2:
            return value[:at] + value[at + 1 :] if kind else [*value, value[at]]
        return [*value[:at], changed(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.6:
        return rng.choice((value[1:], value + "a", value + value, value.upper(), value + "\n"))
    if isinstance(value, int | float) and rng.random() < 0.6:
        return rng.choice((value + 1, value - 1, -value, value * 10, value + 0.5))
    return _any(rng)


def texts_of(value: Any) -> Iterator[str]:
    """Yield the usual layouts of a value."""
    yield json.dumps(value, ensure_ascii=False)
    yield json.dumps(value, ensure_ascii=False, indent=2)
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def escaped(value: Any) -> str:
    """Return the text of a value in which texts and names are escapes of their characters."""
    if isinstance(value, dict):
        pairs = (f"{escaped(key)}:{escaped(one)}" for key, one in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(escaped, value)) + "]"
    if isinstance(value, str):
        units = value.encode("utf-16-be")
        codes = (units[at : at + 2].hex() for at in range(0, len(units), 2))
        return '"' + "".join(f"\\u{code}" for code in codes) + '"'
    return json.dumps(value)


def _any(rng: random.Random) -> Any:
    return rng.choice((None, True, 0, -3, 2.5, "a", "", [], [1], {}, {"a": None}, 12345678901))


def _drawn(rng: random.Random, depth: int, defs: tuple[str, ...]) -> dict[str, Any]:
    schema = _common(rng, depth, defs)
    if rng.random() < 0.06:
        name = rng.choice(list(RARE))
        return schema | {name: rng.choice(RARE[name])}
    return schema


def _common(rng: random.Random, depth: int, defs: tuple[str, ...]) -> dict[str, Any]:
    kind = rng.choice(LEAVES if depth == 0 else BRANCHES + LEAVES)

    def one() -> dict[str, Any]:
        return _drawn(rng, depth - 1, defs)

    match kind:
        case "string":
            return _string(rng)
        case "integer" | "number":
            return _number(rng, kind)
        case "boolean" | "null":
            return {"type": kind}
        case "enum":
            return {"enum": [_any(rng) for _ in range(rng.randint(1, 3))]}
        case "const":
            return {"const": rng.choice((_any(rng), rng.choice(TEXTS)))}
        case "object":
            return _object(rng, one)
        case "array":
            schema: dict[str, Any] = {"type": "array"}
            if rng.random() < 0.9:
                schema["items"] = one()
            return schema | _bounds(rng, "minItems", "maxItems", 3)
        case "tuple":
            schema = {"type": "array", "prefixItems": [one() for _ in range(rng.randint(1, 3))]}
            if rng.random() < 0.6:
                schema["items"] = rng.choice((False, one()))
            return schema | _bounds(rng, "minItems", "maxItems", 4)
        case "anyOf" | "oneOf":
            return {kind: [one() for _ in range(rng.randint(1, 3))]}
        case "allOf":
            return {"allOf": [one() for _ in range(rng.randint(1, 2))]}
        case "types":
            names = rng.sample(("string", "integer", "null", "boolean", "object", "array"), 2)
            return {"type": names} | _bounds(rng, "minLength", "maxLength", 3)
        case "$ref" if defs:
            return {"$ref": f"#/$defs/{rng.choice(defs)}"}
    return {}


def _string(rng: random.Random) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    kind = rng.randrange(5)
    if kind == 0:
        schema["pattern"] = rng.choice(list(PATTERNS))
    if kind == 1:
        schema["format"] = rng.choice(list(FORMATS))
    if kind in {0, 2, 3} and rng.random() < 0.6:
        schema |= _bounds(rng, "minLength", "maxLength", 4)
    return schema


def _number(rng: random.Random, kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind}
    if rng.random() < 0.6:
        low = rng.choice((-120, -1, 0, 1, 7, 99)) + (0.5 if kind == "number" else 0)
        high = low + rng.choice((0, 1, 3, 120))
        names = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
        for value, pair in zip((low, high), names, strict=True):
            if rng.random() < 0.7:
                schema[rng.choice(pair)] = value
    if rng.random() < 0.15:
        schema["multipleOf"] = rng.choice((2, 3, 5, 0.5))
    return schema


def _object(rng: random.Random, one: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    names = rng.sample(NAMES, rng.randrange(4))
    if names or rng.random() < 0.5:
        schema["properties"] = {name: one() for name in names}
    if names and rng.random() < 0.8:
        schema["required"] = rng.sample(names, rng.randint(1, len(names)))
    if rng.random() < 0.6:
        schema["additionalProperties"] = rng.choice((False, False, True, one()))
    if rng.random() < 0.1:
        schema["patternProperties"] = {"^x": one()}
    if rng.random() < 0.2:
        schema |= _bounds(rng, "minProperties", "maxProperties", 3)
    return schema


def _bounds(rng: random.Random, low: str, high: str, most: int) -> dict[str, int]:
    first = rng.randrange(most)
    both = {low: first, high: first + rng.randrange(most)}
    return {name: value for name, value in both.items() if rng.random() < 0.4}


def _value(schema: Any, root: dict[str, Any], rng: random.Random, depth: int) -> Any:
    if not isinstance(schema, dict) or depth < 0:
        return _any(rng)

    def one(inner: Any) -> Any:
        return _value(inner, root, rng, depth - 1)

    if "$ref" in schema:
        return one(root["$defs"][schema["$ref"].rpartition("/")[2]])
    if "enum" in schema or "const" in schema:
        return rng.choice(schema.get("enum") or [schema["const"]])
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return one(rng.choice(schema[name]))
    kind = schema.get("type")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    match kind:
        case "string":
            return _text_of(schema, rng)
        case "integer" | "number":
            return _number_of(schema, kind, rng)
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "array":
            first = schema.get("prefixItems", [])
            low = schema.get("minItems", 0)
            high = schema.get("maxItems", max(low, len(first), rng.randrange(_MOST_ITEMS)))
            number = rng.randint(min(low, high), high)
            kinds = [*first, *[schema.get("items", {})] * number][:number]
            return [one(inner) for inner in kinds]
        case "object":
            return _object_of(schema, one, rng)
    return _any(rng)


def _text_of(schema: dict[str, Any], rng: random.Random) -> str:
    if "pattern" in schema:
        return rng.choice(PATTERNS.get(schema["pattern"], TEXTS))
    if "format" in schema:
        return rng.choice(FORMATS.get(schema["format"], TEXTS))
    low = schema.get("minLength", 0)
    text = rng.choice(TEXTS) + "é😀a\n"[: rng.randrange(5)]
    if "minLength" in schema or "maxLength" in schema:
        text = "".join(char for char in text if char.isalnum())
    return (text + "abcdef" * (len(text) < low))[: schema.get("maxLength", 12)]


def _number_of(schema: dict[str, Any], kind: str, rng: random.Random) -> float:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -5))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 200))
    if kind == "integer" or rng.random() < 0.3:
        return rng.randint(math.ceil(min(low, high)), math.floor(max(low, high)) + 1)
    value = round(rng.uniform(low, high), rng.randrange(4))
    return int(value) if value == int(value) else value  # 3.0 may be no writing of a whole number


def _object_of(schema: dict[str, Any], one: Any, rng: random.Random) -> dict[str, Any]:
    """Return an object whose properties come in the schema's order, and others behind them."""
    known = schema.get("properties", {})
    required = schema.get("required", ())
    value = {
        name: one(inner) for name, inner in known.items() if name in required or rng.random() < 0.5
    }
    others = schema.get("additionalProperties", {})
    if others is not False:
        free = [name for name in (*NAMES, "more", "z") if name not in known]
        for name in rng.sample(free, max(schema.get("minProperties", 0), rng.randrange(3))):
            value[name] = one(others)
    return value
