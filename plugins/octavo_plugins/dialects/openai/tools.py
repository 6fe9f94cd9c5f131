"""Tools as chats have them: descriptions, the choice among them, and messages about their calls.

Knows OpenAI's shapes of these. Does not know how calls are written by a model, or read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError, did_you_mean
from octavo_plugins.dialects.shared.tools import tool_choice, tool_specs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from octavo.frontend.turns import ToolChoice
    from octavo.interfaces.parser import ToolSpec
    from octavo_plugins.dialects.openai.bodies import ChatBody


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
    return tool_specs(body.tools)


def choice_of(body: ChatBody, tools: Sequence[ToolSpec]) -> ToolChoice:
    """Return what a chat may call of its tools. Raises RequestError naming the field at fault."""
    is_parallel = body.parallel_tool_calls is not False
    return tool_choice(body.tool_choice, tools, is_parallel=is_parallel)


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
