r"""JSON schemas as llguidance holds to them: what it would take for something else is changed.

A reader of JSON takes `"\u0061"` for the name `a`. llguidance lets a further property have such a
name, with a value that the schema forbids for `a`, or a second one. Where names are told apart by a
pattern it has them written plainly. So an open object is written as one whose further properties
match a pattern, which says the same. Numbers go through 64 bits, and larger ones are refused.

Knows keywords of JSON schemas. What llguidance itself refuses is not looked at. Does not compile.
"""

from __future__ import annotations

import re
from typing import Any, Final

from octavo.errors import GrammarError

#: keywords that hold values, and those that hold schemas by name
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
_MAPS: Final = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
#: where whole numbers of 64 bits end
_BEYOND: Final = 1 << 63
#: bounds, with the sign of those that leave out all there are
_BOUNDS: Final = {"minimum": 1, "exclusiveMinimum": 1, "maximum": -1, "exclusiveMaximum": -1}


def make_exact(schema: dict[str, Any]) -> None:
    """Change a schema in place. Raises GrammarError for what cannot be held to."""
    left: list[Any] = [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            _check_count(one)
            _check_numbers(one)
            _close(one)
            for keyword, value in one.items():
                if keyword in _MAPS and isinstance(value, dict):
                    left += value.values()
                elif keyword not in _VALUES:
                    left.append(value)


def _check_count(schema: dict[str, Any]) -> None:
    """Refuse to count names that nobody knows: a text may have one of them twice."""
    least, required = schema.get("minProperties"), schema.get("required", ())
    is_told = isinstance(least, int | float) and isinstance(required, list | tuple)
    if is_told and least - len(required) > 1:
        raise _refused("'minProperties' that counts names which are not required")


def _check_numbers(schema: dict[str, Any]) -> None:
    """Refuse numbers that would become others; bounds beyond all that is written are none."""
    values = [*_list(schema.get("enum")), *_list([schema.get("const")])]
    for name, sign in _BOUNDS.items():
        bound = schema.get(name)
        if isinstance(bound, int | float) and bound * sign > -_BEYOND:
            values.append(bound)
    for value in values:
        if isinstance(value, int) and not _is_exact(value):
            raise GrammarError(
                f"the JSON schema has the number {value!r:.40}, which is too large",
                "numbers of up to 15 digits are held to",
            )


def _is_exact(value: int) -> bool:
    return -_BEYOND < value < _BEYOND and int(float(value)) == value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _close(schema: dict[str, Any]) -> None:
    """Turn further properties into those of a pattern, where their names matter."""
    others = schema.get("additionalProperties", True)
    if others is False:
        return
    names, patterns = schema.get("properties"), schema.get("patternProperties")
    if isinstance(patterns, dict) and patterns:
        if not all(map(_is_any, (others, *patterns.values()))):
            raise _refused("'patternProperties' beside further properties")
        del schema["patternProperties"]
    if isinstance(names, dict) and names:
        schema["patternProperties"] = {"" if _is_any(others) else _none_of(names): others}
        schema["additionalProperties"] = False


def _is_any(schema: Any) -> bool:
    return schema is True or schema == {}


def _none_of(names: dict[str, Any]) -> str:
    """Return a pattern of all names but these: where each leaves the last of them."""
    following: dict[str, set[str]] = {"": set()}
    for name in names:
        for end in range(1, len(name) + 1):
            following.setdefault(name[: end - 1], set()).add(name[end - 1])
            following.setdefault(name[:end], set())
    parts = [re.escape(start) for start in following if start not in names]
    for start, chars in following.items():
        other = f"[^{''.join(map(re.escape, sorted(chars)))}]" if chars else r"[\s\S]"
        parts.append(rf"{re.escape(start)}{other}[\s\S]*")
    return f"^(?:{'|'.join(parts)})$"


def _refused(what: str) -> GrammarError:
    return GrammarError(
        f"the JSON schema has {what}, which is not held to",
        "set additionalProperties to false, or list the properties",
    )
