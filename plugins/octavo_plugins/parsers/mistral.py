"""Turns of Mistral's models: `[THINK]` around reasoning, and calls behind `[TOOL_CALLS]`.

Older models write a list of JSON objects behind the mark, newer ones the name, `[ARGS]` and the
arguments of one call behind each.

Source: mistral-common's tokenizers v3 to v13 and the chat template of mistralai/Magistral-Small.
Knows these marks. Does not know ids of calls, of which the text has none any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import (
    CallTag,
    Content,
    Example,
    Reasoning,
    ReasoningMarks,
    ToolSpec,
    TurnContext,
    TurnParser,
)
from octavo.text.call_scanner import CallScanner
from octavo.text.chained_turn import ChainedTurn
from octavo.text.marks import Marks
from octavo.text.reasoning_scanner import ReasoningScanner, is_opened_by
from octavo_plugins.parsers.family import Family, calling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.text.turn_scanner import Script

CALLS, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
THINK, THINK_END = "[THINK]", "[/THINK]"
_STARTS, _NAME_ENDS, _ID_ENDS = Marks(CALLS), Marks(ARGUMENTS, CALL_ID), Marks(ARGUMENTS)


class Mistral(Family):
    """Reasoning comes first, if it comes."""

    visible_markers = frozenset({CALLS, ARGUMENTS, CALL_ID, THINK, THINK_END})
    template_has: ClassVar = (CALLS,)

    def open(self, context: TurnContext) -> TurnParser:
        """Return a reader for one turn."""
        is_open = is_opened_by(context.prompt, THINK)
        thinking = ReasoningScanner(context, (THINK,), (THINK_END,), is_open=is_open)
        return ChainedTurn(thinking, MistralTurn(context))

    def reasoning_marks(self, context: TurnContext) -> ReasoningMarks:
        """Return the marks."""
        return ReasoningMarks(THINK, THINK_END, is_opened_by(context.prompt, THINK))

    def call_tag(self, tool: ToolSpec) -> CallTag:
        """Return how newer models write a call."""
        return CallTag(CALLS, f"{CALLS}{tool.name}{ARGUMENTS}", "")

    def examples(self) -> Sequence[Example]:
        """Return a turn of a newer model, which thinks, and one of an older."""
        new = (
            '[THINK]Hm.[/THINK]Let me look.[TOOL_CALLS]get_weather[ARGS]{"city": "Ærø", "days": 2}'
            "[TOOL_CALLS]get_time[CALL_ID]a1b2c3d4e[ARGS]{}"
        )
        old = (
            '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Ærø", "days": 2}}, '
            '{"name": "get_time", "arguments": {}}]'
        )
        return [calling(new, Reasoning("Hm."), Content("Let me look.")), calling(old)]


class MistralTurn(CallScanner):
    """Reads what follows the reasoning of one turn."""

    def read(self) -> Script:
        """Read content, and the calls behind one mark."""
        yield from self.say_until(_STARTS)
        yield from self.skip_space()
        if self.next_char == "[":
            yield from self.call_list()
            return
        name = yield from self.hold_until(_NAME_ENDS)
        if self.last_mark == CALL_ID:
            yield from self.hold_until(_ID_ENDS)
        yield from self.arguments(name.strip())
