"""What messages, tools and their choice may hold where they have the shape of OpenAI's chats.

Names that clients send by habit and that ask for nothing (`annotations`, `cache_control`) are
among them. Knows names. Does not know what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octavo_plugins.dialects.shared.parts import anything

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo_plugins.dialects.shared.parts import Shape

#: a part of a content: only its text is read
CONTENT_PART: Final = anything(
    "type", "text", "refusal", "annotations", "logprobs", "cache_control"
)
_CALL: Final[Shape] = {
    **anything("id", "type", "index"),
    "function": anything("name", "arguments"),
}
MESSAGES: Final[Mapping[str, Shape]] = {
    "messages": {
        **anything("role", "name", "tool_call_id", "refusal", "annotations", "cache_control"),
        **anything("reasoning", "reasoning_content", "thinking"),
        "content": CONTENT_PART,
        "tool_calls": _CALL,
    },
}
TOOLS: Final[Mapping[str, Shape]] = {
    "tools": {
        "type": None,
        "cache_control": None,
        "function": anything("name", "description", "parameters", "strict"),
    },
}
CHOICE: Final[Mapping[str, Shape]] = {
    "tool_choice": {"type": None, "function": anything("name")},
}
