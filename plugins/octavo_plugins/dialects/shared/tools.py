"""The tools that a request offers, in the shape that chat templates take, which is OpenAI's.

Knows that shape. Does not know parsers, or how other APIs write tools: they translate theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.frontend.turns import ToolChoice
from octavo.interfaces.parser import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_TOOLS = 1024


def function_tool(
    name: Any, description: Any, parameters: Any, *, is_strict: bool = False
) -> dict[str, Any]:
    """Return a tool as templates take it."""
    function: dict[str, Any] = {"name": name}
    if description is not None:
        function["description"] = description
    function["parameters"] = parameters
    if is_strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def tool_specs(tools: Sequence[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """Return what parsers must know of tools. Raises RequestError naming the one at fault."""
    if len(tools) > MAX_TOOLS:
        raise _fault(f"there are {len(tools)} tools, and at most {MAX_TOOLS} are taken")
    specs = [_spec(f"tools[{i}]", tool) for i, tool in enumerate(tools)]
    names = [spec.name for spec in specs]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise _fault(f"tools[{i}]: a tool {name!r:.80} is there already")
    return tuple(specs)


def _spec(where: str, tool: Any) -> ToolSpec:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or tool.get("type") != "function" or function is None:
        raise _fault(f"{where} must be an object of type 'function' with a function")
    if not isinstance(function, dict):
        raise _fault(f"{where}.function must be an object")
    name = function.get("name")
    parameters = function.get("parameters") or {}
    if not isinstance(name, str) or not name:
        raise _fault(f"{where}: its name must be a text that is not empty")
    if not isinstance(parameters, dict):
        raise _fault(f"{where}: the schema of its parameters must be an object")
    if not isinstance(function.get("description"), str | None):
        raise _fault(f"{where}: its description must be a text")
    return ToolSpec(name, parameters, is_strict=function.get("strict") is True)


def openai_choice(given: Any, *, has_tools: bool, is_parallel: bool) -> ToolChoice:
    """Return what a `tool_choice` of OpenAI's asks for: a word, or the name of a function.

    Without one any call may be made, where there are tools. Raises RequestError.
    """
    if given is None:
        return ToolChoice("auto" if has_tools else "none", is_parallel=is_parallel)
    if given in ("auto", "none", "required"):
        return ToolChoice(given, is_parallel=is_parallel)
    named = given.get("function", given) if isinstance(given, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    if given and isinstance(given, dict) and given.get("type") == "function" and name:
        return ToolChoice("named", str(name), is_parallel=is_parallel)
    raise RequestError(
        f"tool_choice must be 'auto', 'none', 'required' or name a function, not {given!r:.80}",
        param="tool_choice",
    )


def _fault(text: str) -> RequestError:
    return RequestError(text, param="tools")
