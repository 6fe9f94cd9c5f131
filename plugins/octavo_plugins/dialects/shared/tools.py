"""The tools that a request offers, in the shape that chat templates take, which is OpenAI's.

Knows that shape. Does not know parsers, or how other APIs write tools: they translate theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError, did_you_mean
from octavo.frontend.tools import check_tools
from octavo.frontend.turns import ToolChoice
from octavo.interfaces.parser import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHOICES: Final = ("none", "auto", "required")


def function_tool(tool: Mapping[str, Any], parameters: Any) -> dict[str, Any]:
    """Return a tool of another shape as templates take it: its name, description, parameters."""
    function = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
    return {"type": "function", "function": function | {"parameters": parameters}}


def tool_specs(tools: Sequence[Mapping[str, Any]]) -> list[ToolSpec]:
    """Return what parsers must know of tools. Raises RequestError naming the one at fault."""
    specs = [_spec(f"tools[{i}]", one) for i, one in enumerate(tools)]
    check_tools(specs)
    return specs


def tool_choice(given: Any, tools: Sequence[ToolSpec], *, is_parallel: bool) -> ToolChoice:
    """Return which calls a `tool_choice` of OpenAI's asks for. Raises RequestError."""
    if given is not None and given != "none" and not tools:
        raise RequestError("tool_choice needs tools to choose from", param="tool_choice")
    match given:
        case None:
            return ToolChoice("auto" if tools else "none", is_parallel=is_parallel)
        case "none" | "auto" | "required":
            return ToolChoice(given, is_parallel=is_parallel)
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice("named", name)
    raise RequestError(
        f"tool_choice cannot be {given!r:.80}",
        did_you_mean(given, _CHOICES) if isinstance(given, str) else "",
        f"it is one of {', '.join(_CHOICES)}, or an object: "
        '{"type": "function", "function": {"name": ...}}',
        param="tool_choice",
    )


def _spec(where: str, given: Mapping[str, Any]) -> ToolSpec:
    kind = given.get("type", "function")
    if kind != "function":
        raise _wrong(f"{where}.type is {kind!r:.40}: this server runs no tools of its own")
    function = given.get("function")
    if not isinstance(function, dict):
        raise _wrong(f"{where}.function must be an object with a name")
    name, strict = function.get("name"), function.get("strict")
    parameters = function.get("parameters")
    if not isinstance(name, str):
        raise _wrong(f"{where}.function.name must be a string")
    if not isinstance(function.get("description"), str | None):
        raise _wrong(f"{where}.function.description must be a string")
    if not isinstance(strict, bool | None):
        raise _wrong(f"{where}.function.strict must be true or false, not {strict!r:.40}")
    if not isinstance(parameters, dict | None):
        raise _wrong(f"{where}.function.parameters must be a JSON schema, an object")
    return ToolSpec(name, parameters or {}, is_strict=bool(strict))


def _wrong(text: str) -> RequestError:
    return RequestError(text, param="tools")
