"""Calls as Hermes, Qwen 2.5 and 3 and SmolLM 3 write them: `<tool_call>` around a JSON object.

Source: the chat templates of NousResearch/Hermes-2-Pro and Qwen/Qwen3. Knows these marks. Does
not know reasoning: Qwen's is read by `think`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    CallTag,
    Content,
    Example,
    ToolSpec,
    TurnContext,
)
from octavo.text.call_scanner import CallScanner
from octavo.text.marks import Marks
from octavo_plugins.parsers.family import BOTH_CALLS, WITH_TOOLS, Family, calling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.parser import TurnEvent
    from octavo.text.turn_scanner import Script

START, END = "<tool_call>", "</tool_call>"
_STARTS = Marks(START)


class Hermes(Family):
    """One object between each pair of marks; several are read as well."""

    visible_markers = frozenset({START, END})
    template_has: ClassVar = (START,)
    template_lacks: ClassVar = ("<function=", "<arg_key>", "<tool_calls>", "<minimax:tool_call>")

    def open(self, context: TurnContext) -> HermesTurn:
        """Return a reader for one turn."""
        return HermesTurn(context)

    def call_tag(self, tool: ToolSpec) -> CallTag:
        """Return how a call is written."""
        begin = f'{START}\n{{"name": {json.dumps(tool.name)}, "arguments": '
        return CallTag(START, begin, f"}}\n{END}")

    def examples(self) -> Sequence[Example]:
        """Return a turn with two calls, and others with less, or with escapes."""
        two = (
            "Let me look.\n<tool_call>\n"
            '{"name": "get_weather", "arguments": {"city": "Ærø", "days": 2}}\n</tool_call>\n'
            '<tool_call>\n{"arguments": {}, "name": "get_time"}\n</tool_call>'
        )
        none = '<tool_call>{"name": "get_time"}</tool_call>'
        lines = (
            '<tool_call>{"name": "get_weather", "arguments": {"city": "Ærø", "days": 2}}\n'
            '{"name": "get_time", "arguments": "{}"}</tool_call>'
        )
        once: list[TurnEvent] = [CallBegin(0, "get_time"), CallArguments(0, "{}"), CallEnd(0)]
        escaped = '<tool_call>{"name": "get_time", "arguments": {"at": "\\u00c6r\\u00f8 \\"x\\\\"}}'
        at: list[TurnEvent] = [
            CallBegin(0, "get_time"),
            CallArguments(0, '{"at": "\\u00c6r\\u00f8 \\"x\\\\"}'),
            CallEnd(0),
        ]
        return [
            calling(two, Content("Let me look.\n")),
            Example(WITH_TOOLS, none, once),
            calling(lines),
            Example(
                WITH_TOOLS,
                f"{two}\n\nThere.\n",
                [Content("Let me look.\n"), *BOTH_CALLS, Content("\n\nThere.\n")],
            ),
            Example(WITH_TOOLS, f"{escaped}</tool_call>", at),
        ]


class HermesTurn(CallScanner):
    """Reads one turn."""

    def read(self) -> Script:
        """Read content, and the calls between one pair of marks."""
        yield from self.say_until(_STARTS)
        yield from self.call_object()
        while not (yield from self.close(END)):
            yield from self.call_object()
