"""What items, tools and their choice may hold in the bodies of /v1/responses.

Items of an answer come back as they were sent, so that their ids and states are among it. Knows
names. Does not know what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octavo_plugins.dialects.shared.chat_parts import CONTENT_PART
from octavo_plugins.dialects.shared.parts import Kinds, anything

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo_plugins.dialects.shared.parts import Shape

_OF_ALL: Final = anything("type", "id", "status")
_ITEM: Final = Kinds(
    {
        "message": {**_OF_ALL, "role": None, "content": CONTENT_PART},
        "reasoning": {
            **_OF_ALL,
            "encrypted_content": None,
            "summary": CONTENT_PART,
            "content": CONTENT_PART,
        },
        "function_call": {**_OF_ALL, **anything("call_id", "name", "arguments")},
        "function_call_output": {**_OF_ALL, "call_id": None, "output": CONTENT_PART},
    },
    default="message",
)
PARTS: Final[Mapping[str, Shape]] = {
    "input": _ITEM,
    "tools": anything("type", "name", "description", "parameters", "strict"),
    "tool_choice": anything("type", "name"),
}
