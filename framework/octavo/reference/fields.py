"""Fields of pydantic models as rows of a table: name, type, limits, default, meaning.

Knows JSON schemas. Does not know whose fields they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.reference.markdown import code, codes, inline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic import BaseModel

_LIMITS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {}"),
    ("maxItems", "at most {}"),
    ("pattern", "matches `{}`"),
)


class FieldRow(NamedTuple):
    """One field, as Markdown. `key` is plain: what files and requests write."""

    key: str
    values: str
    default: str
    description: str


def field_rows(model: type[BaseModel]) -> Iterator[FieldRow]:
    """Yield the fields of a model, in order."""
    schema = model.model_json_schema()
    required = set(schema.get("required", ()))
    for name, field in model.model_fields.items():
        key = field.alias or name
        one = schema["properties"][key]
        default = "required" if key in required else shown_default(field.get_default())
        yield FieldRow(key, values_of(one, schema), default, inline(field.description or ""))


def shown_default(value: Any) -> str:
    """Return a default as a file would have it; nothing for one that says "none given"."""
    if value is None or value == ():
        return ""
    return code(json.dumps(value)) if isinstance(value, bool | int | float) else code(str(value))


def values_of(one: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return which values a field takes: its type and limits, or its choices."""
    if "$ref" in one:
        return values_of(schema["$defs"][one["$ref"].rpartition("/")[2]], schema)
    if "enum" in one:
        return codes(map(str, one["enum"]))
    if "const" in one:
        return code(str(one["const"]))
    if "anyOf" in one:
        parts = (values_of(part, schema) for part in one["anyOf"])
        return " or ".join(dict.fromkeys(part for part in parts if part != "null"))
    if "allOf" in one:
        return values_of(one["allOf"][0], schema)
    words = [str(one.get("type", "any"))]
    if isinstance(one.get("items"), dict):
        words = [f"array of {values_of(one['items'], schema)}"]
    words += [text.format(_number(one[key])) for key, text in _LIMITS if key in one]
    return ", ".join(words)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
