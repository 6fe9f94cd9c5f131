"""Tools as chats have them: descriptions, the choice among them, and messages about their calls.

Knows OpenAI's shapes of these. Does not know how calls are written by a model, or read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError, did_you_mean
from octavo.frontend.tools import check_tools
from octavo.frontend.turns import ToolChoice
from octavo.interfaces.parser import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from octavo_plugins.dialects.openai.bodies import ChatBody

_CHOICES = ("none", "auto", "required")


def tools_of(body: ChatBody) -> list[ToolSpec]:
    """Return the tools of a chat. Raises RequestError naming the field at fault."""
    for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
        if getattr(body, old) not in (None, "none"):
            raise RequestError(
                f"{old} is the older form of {new}, and is not supported",
                f"send {new}",
                param=old,
            )
    if body.tools is None:
        return []
    if not body.tools and body.tool_choice != "none":
        raise RequestError("tools is empty: leave it out, or list some", param="tools")
    tools = [_tool(f"tools[{i}]", one) for i, one in enumerate(body.tools)]
    check_tools(tools)
    return tools


def choice_of(body: ChatBody, tools: Sequence[ToolSpec]) -> ToolChoice:
    """Return what a chat may call of its tools. Raises RequestError naming the field at fault."""
    given = body.tool_choice
    is_parallel = body.parallel_tool_calls is not False
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


def _tool(where: str, given: Mapping[str, Any]) -> ToolSpec:
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


def check_history(messages: Sequence[Any]) -> None:
    """Refuse results of calls that nobody made. Raises RequestError naming the message.

    What is no message at all is found where messages are rendered.
    """
    known: set[str] = set()
    has_calls = is_any_id_missing = False
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            return
        if message.get("role") == "assistant":
            for call in _calls(message):
                has_calls = True
                call_id = call.get("id")
                is_any_id_missing |= not isinstance(call_id, str)
                known.add(str(call_id))
        if message.get("role") != "tool":
            continue
        where, call_id = f"messages[{i}]", message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise RequestError(f"{where}.tool_call_id must be a string", param="messages")
        if not has_calls:
            raise RequestError(
                f"{where} is the result of a call, and no message before it has tool_calls",
                param="messages",
            )
        if call_id not in known and not is_any_id_missing:
            raise RequestError(
                f"{where}.tool_call_id {call_id!r:.80} is that of no call before it",
                did_you_mean(call_id, known),
                param="messages",
            )


def _calls(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    for one in calls if isinstance(calls, list) else ():
        if isinstance(one, dict):
            yield one
