"""Tools as requests describe them: names and schemas, checked before a prompt is rendered.

Every dialect makes `ToolSpec`s of its own shape and has them checked here. Knows names and JSON
schemas. Does not know HTTP, or any dialect's shape.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from octavo.interfaces.parser import ToolSpec

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "not")
_MAX_DEPTH: Final = 64


def check_tools(tools: Sequence[ToolSpec], param: str = "tools") -> None:
    """Refuse names that are taken or can be none, and what is no JSON schema of an object.

    Raises RequestError for the first fault; `param` is what the dialect calls the field.
    """
    names: set[str] = set()
    for i, tool in enumerate(tools):
        where = f"{param}[{i}]"
        if not _NAME.fullmatch(tool.name):
            raise RequestError(
                f"{where}: {tool.name!r:.80} cannot be the name of a tool",
                "a name has up to 128 letters, digits and any of _ . : / -",
                param=param,
            )
        if tool.name in names:
            raise RequestError(f"{where}: two tools are called '{tool.name}'", param=param)
        names.add(tool.name)
        if fault := _fault_of_parameters(tool.parameters):
            raise RequestError(
                f"{where}: the schema of '{tool.name}' is not valid: {fault}", param=param
            )


def _fault_of_parameters(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type", "object")
    if kind != "object":
        return f"parameters are an object, and its type is {kind!r:.40}"
    return next(_faults(schema, "parameters", 0), None)


def _faults(schema: Any, where: str, depth: int) -> Iterator[str]:
    """Yield what is wrong with a schema, as far as its shape tells."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{where} is {schema!r:.40}, and no schema"
        return
    if depth > _MAX_DEPTH:
        yield f"{where:.80}... is nested too deeply"
        return
    yield from _faults_of_keywords(schema, where)
    for keyword in _MAPS:
        if isinstance(named := schema.get(keyword), dict):
            for name, one in named.items():
                yield from _faults(one, f"{where}.{keyword}.{name}", depth + 1)
    for keyword in _LISTS:
        if isinstance(some := schema.get(keyword), list):
            for i, one in enumerate(some):
                yield from _faults(one, f"{where}.{keyword}[{i}]", depth + 1)
    for keyword in _SCHEMAS:
        if keyword in schema and not isinstance(schema[keyword], list):
            yield from _faults(schema[keyword], f"{where}.{keyword}", depth + 1)


def _faults_of_keywords(schema: Mapping[str, Any], where: str) -> Iterator[str]:
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _TYPES:
            yield f"{where}.type is {kind!r:.40}, and not one of {', '.join(_TYPES)}"
    for keyword in _MAPS:
        if not isinstance(schema.get(keyword, {}), dict):
            yield f"{where}.{keyword} must be an object"
    for keyword in (*_LISTS, "enum"):
        if not isinstance(schema.get(keyword, []), list):
            yield f"{where}.{keyword} must be a list"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        yield f"{where}.required must be a list of names"
