"""What blocks, tools and the other objects of Anthropic's bodies may hold.

`cache_control` is among it everywhere: clients send it by habit, and prompts are cached without.
Knows names. Does not know what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octavo_plugins.dialects.shared.parts import Kinds, anything

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo_plugins.dialects.shared.parts import Shape

_OF_ALL: Final = anything("type", "cache_control")
_TEXTS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "text": {**_OF_ALL, "text": None},
    "document": {**_OF_ALL, "source": anything("type", "data", "media_type")},
}
_BLOCK: Final = Kinds(
    {
        **_TEXTS,
        "thinking": {**_OF_ALL, **anything("thinking", "signature")},
        "redacted_thinking": {**_OF_ALL, "data": None},
        "tool_use": {**_OF_ALL, **anything("id", "name", "input")},
        "tool_result": {
            **_OF_ALL,
            **anything("tool_use_id", "is_error"),
            "content": Kinds(_TEXTS),
        },
    }
)
PARTS: Final[Mapping[str, Shape]] = {
    "system": Kinds(_TEXTS),
    "messages": {"role": None, "content": _BLOCK},
    "tools": {**_OF_ALL, **anything("name", "description", "input_schema", "strict")},
    "tool_choice": anything("type", "name", "disable_parallel_tool_use"),
    "metadata": anything("user_id"),
}
