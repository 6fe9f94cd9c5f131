"""JSON schemas as xgrammar holds to them: what it would pass over is refused here.

xgrammar ignores keywords that it does not know, and some that it does (`not`, `contains`, lengths
beside a pattern, whatever stands beside `$ref` or `anyOf`). So each is looked at, and a schema is
written that says the same and has nothing of the kind.

Knows the keywords of JSON schemas. Does not compile.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import GrammarError
from octavo_plugins.grammars.patterns import in_json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

#: what asks for something in some version of JSON schemas; all other names are notes to readers
_REFUSED: Final = frozenset({
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems",
    "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "additionalItems", "format", "disallow",
    "extends", "divisibleBy", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef",
    "$recursiveAnchor",
})  # fmt: skip
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "string": ("pattern", "minLength", "maxLength"),
    "integer": (*_BOUNDS, "multipleOf"),
    "number": _BOUNDS,
    "boolean": (),
    "null": (),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": (
        "properties", "required", "additionalProperties", "minProperties", "maxProperties",
    ),
}  # fmt: skip
_ALL_KEYWORDS: Final = frozenset().union(*_KEYWORDS.values())
_COUNTS: Final = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_REFERENCE: Final = re.compile(r"#(?:/(?:\$defs|definitions)/[^/]+)?")
_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "null": (type(None),), "array": (list,), "object": (dict,),
}  # fmt: skip
#: a name for the whole schema: xgrammar misses tokens behind a root that comes back to itself
_WHOLE: Final = "the whole schema"
#: larger bounds are no longer exact in the numbers of JSON
_MAX_BOUND: Final = 10**15
_MAX_FACTOR: Final = 1024


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that xgrammar holds to as it is. Raises GrammarError with what it cannot."""
    try:
        if any(isinstance(one.get("$id"), str) for one in _inner(schema)):
            raise _refused("an '$id' inside of it")
        plain = _plain(schema)
        for name in ("$defs", "definitions"):
            if name in schema:
                plain[name] = {key: _plain(one) for key, one in _object(schema, name).items()}
    except RecursionError as error:
        raise GrammarError("the JSON schema is nested too deeply") from error
    if plain == {"$ref": f"#/$defs/{_WHOLE}"}:
        raise GrammarError("no text has this form", "the JSON schema is a reference to itself")
    own = plain.pop("$defs", {})
    if _WHOLE in own:
        raise _refused(f"the name {_WHOLE!r} among $defs")
    definitions = {"definitions": plain.pop("definitions")} if "definitions" in plain else {}
    return {"$ref": f"#/$defs/{_WHOLE}", "$defs": {**own, _WHOLE: plain}, **definitions}


def _inner(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects inside of a schema, whatever they are."""
    for one in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(one, dict):
            yield one
        if isinstance(one, dict | list):
            yield from _inner(one)


def _plain(schema: Any) -> dict[str, Any]:
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise _refused(f"{schema!r:.40} in the place of a schema")
    ignored = _REFUSED & set(schema)
    if ignored and not (ignored == {"uniqueItems"} and schema["uniqueItems"] is False):
        raise _refused(f"the keyword {min(ignored)!r}")
    keys = set(schema) & {*_ALL_KEYWORDS, "$ref", "enum", "const", "type", *_UNIONS}
    for name in ("$ref", "const", "enum", *_UNIONS):
        if name in schema:
            beside = keys - {name} - ({"type"} if name in {"const", "enum"} else set())
            if beside:
                raise _refused(f"{min(beside)!r} beside {name!r}")
            return _alone(name, schema)
    return _of_types(schema, keys)


def _alone(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that has one keyword that says everything."""
    value = schema[name]
    if name == "$ref":
        if not isinstance(value, str) or not _REFERENCE.fullmatch(value):
            raise _refused(f"the reference {value!r:.80}: only those into $defs are")
        return {"$ref": value if value != "#" else f"#/$defs/{_WHOLE}"}
    if name in {"const", "enum"}:
        values = [value] if name == "const" else value
        if not isinstance(values, list) or not values:
            raise _refused("an enum without values")
        types = _types(schema) or tuple(_PYTHON_TYPES)
        if not all(any(_is_of(one, kind) for kind in types) for one in values):
            raise _refused(f"values of {name!r} that are not of the type")
        plain = [_of_value(one) for one in values]
        return plain[0] if len(plain) == 1 else {"anyOf": plain}
    if not isinstance(value, list) or not value:
        raise _refused(f"{name!r} without schemas")
    if len(value) > 1 and name != "anyOf":
        raise _refused(f"{name!r} of more than one schema")
    return {"anyOf": [_plain(one) for one in value]} if len(value) > 1 else _plain(value[0])


def _of_value(value: Any) -> dict[str, Any]:
    """Return the schema of one value; xgrammar would have a list or an object in one layout."""
    if isinstance(value, list) and value:
        items = [_of_value(one) for one in value]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if isinstance(value, dict) and value:
        properties = {name: _of_value(one) for name, one in value.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    if isinstance(value, int | float) and not -_MAX_BOUND <= value <= _MAX_BOUND:
        raise _refused(f"the value {value!r:.40}")
    return {"enum": [value]}


def _of_types(schema: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    types = _types(schema)
    if not types:
        if keys:
            raise _refused(f"{min(keys)!r} without a type")
        return {}
    written = [_of_type(kind, schema) for kind in types]
    return written[0] if len(written) == 1 else {"anyOf": written}


def _types(schema: dict[str, Any]) -> tuple[str, ...]:
    given = schema.get("type", [])
    types = [given] if isinstance(given, str) else given
    if not isinstance(types, list) or not all(
        isinstance(kind, str) and kind in _KEYWORDS for kind in types
    ):
        raise _refused(f"the type {given!r:.80}")
    return tuple(types)


def _of_type(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    known = _KEYWORDS["integer" if kind == "number" else kind]
    given = {name: schema[name] for name in known if name in schema}
    for name in _COUNTS & set(given):
        if not _is_of(given[name], "integer") or given[name] < 0:
            raise _refused(f"{name!r} of {given[name]!r:.40}")
    match kind:
        case "string":
            return _string(given)
        case "integer" | "number":
            return _number(kind, given)
        case "array":
            return _array(given)
        case "object":
            return _object_of(given)
    return {"type": kind}


def _string(given: dict[str, Any]) -> dict[str, Any]:
    """Return a string's schema; a text with a pattern or a length has no escapes."""
    if "pattern" in given:
        if len(given) > 1:
            raise _refused("lengths beside 'pattern'")
        if not isinstance(given["pattern"], str):
            raise _refused("a pattern that is no text")
        return {"type": "string", "pattern": f"^(?:{in_json_text(given['pattern'])})$"}
    if given.get("maxLength", math.inf) < given.get("minLength", 0):
        raise GrammarError("no text has this form", "maxLength is below minLength")
    return {"type": "string", **given}


def _number(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if name not in _KEYWORDS[kind]:
            raise _refused(f"{name!r} of a number")
        if not _is_of(value, kind) or not -_MAX_BOUND <= value <= _MAX_BOUND:
            raise _refused(f"{name!r} of {value!r:.40}")
    if "multipleOf" in given and (len(given) > 1 or not 1 <= given["multipleOf"] <= _MAX_FACTOR):
        raise _refused("'multipleOf' beside bounds, or outside of 1 to 1024")
    return {"type": kind, **given}


def _array(given: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": "array"}
    plain |= {name: given[name] for name in ("minItems", "maxItems") if name in given}
    if "prefixItems" in given:
        if not isinstance(given["prefixItems"], list):
            raise _refused("'prefixItems' that are no list")
        plain["prefixItems"] = [_plain(one) for one in given["prefixItems"]]
    if "items" in given:
        is_end = given["items"] is False and "prefixItems" in given
        plain["items"] = False if is_end else _plain(given["items"])
    return plain


def _object_of(given: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": "object"}
    properties = _object(given, "properties") if "properties" in given else {}
    required = given.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        raise _refused("'required' that is no list of names")
    missing = [name for name in required if name not in properties]
    if missing:
        raise _refused(f"the required property {missing[0]!r:.80} without a schema")
    counts = {name: given[name] for name in ("minProperties", "maxProperties") if name in given}
    if counts and properties:
        raise _refused(f"{min(counts)!r} beside 'properties'")
    if counts.get("minProperties", 0) > 1:
        raise _refused("'minProperties' of more than one name, which may be written twice")
    if given.get("additionalProperties") is not False and any(map(_has_escape, properties)):
        raise _refused("a property whose name needs an escape, beside further properties")
    if properties:
        plain["properties"] = {name: _plain(one) for name, one in properties.items()}
        plain["required"] = required
    if "additionalProperties" in given:
        others = given["additionalProperties"]
        plain["additionalProperties"] = others if others is False else _plain(others)
    return plain | counts


def _has_escape(name: str) -> bool:
    return json.dumps(name, ensure_ascii=False) != f'"{name}"'


def _object(schema: dict[str, Any], name: str) -> dict[str, Any]:
    value = schema[name]
    if not isinstance(value, dict):
        raise _refused(f"{name!r} that is no object")
    return value


def _is_of(value: object, kind: str) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, _PYTHON_TYPES[kind]) and (not is_bool or kind == "boolean")


def _refused(what: str) -> GrammarError:
    return GrammarError(f"the JSON schema has {what}, which xgrammar does not hold to")
