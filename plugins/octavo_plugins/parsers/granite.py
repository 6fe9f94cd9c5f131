"""Turns of Granite 3: sentences before reasoning and answer, and a list of calls behind a mark.

Source: the chat templates of ibm-granite/granite-3.2-8b-instruct and granite-3.3-8b-instruct. Knows
these texts. Does not know Granite 4, whose calls are those of `hermes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import (
    Content,
    Example,
    ListTag,
    Reasoning,
    ReasoningMarks,
    TurnContext,
    TurnParser,
)
from octavo.text.call_scanner import CallScanner
from octavo.text.chained_turn import ChainedTurn
from octavo.text.marks import Marks
from octavo.text.reasoning_scanner import ReasoningScanner
from octavo_plugins.parsers.family import WITHOUT_TOOLS, Family, calling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.parser import TurnEvent
    from octavo.text.turn_scanner import Script

CALLS = "<|tool_call|>"
THOUGHTS = ("Here is my thought process:", "Here's my thought process:", "<think>")
ANSWERS = ("Here is my response:", "Here's my response:", "</think>")
_STARTS = Marks(CALLS)


class Granite(Family):
    """Granite 3.2 writes sentences around its reasoning, 3.3 the usual marks."""

    visible_markers = frozenset({CALLS})
    template_has: ClassVar = (CALLS,)
    template_lacks: ClassVar = ("<|tool|>",)

    def open(self, context: TurnContext) -> TurnParser:
        """Return a reader for one turn."""
        return ChainedTurn(ReasoningScanner(context, THOUGHTS, ANSWERS), GraniteTurn(context))

    def reasoning_marks(self, context: TurnContext) -> ReasoningMarks:
        """Return the sentences."""
        del context
        return ReasoningMarks(THOUGHTS[0], ANSWERS[0], is_open=False)

    def list_tag(self) -> ListTag:
        """Return how calls are written."""
        return ListTag(CALLS, "arguments", "")

    def examples(self) -> Sequence[Example]:
        """Return a turn with reasoning, and one with calls."""
        thought = "Here is my thought process:\nTwo and two.\n\nHere is my response:\nFour."
        calls = (
            '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Ærø", "days": 2}}, '
            '{"name": "get_time", "arguments": {}}]'
        )
        events: list[TurnEvent] = [Reasoning("Two and two."), Content("Four.")]
        return [Example(WITHOUT_TOOLS, thought, events), calling(calls)]


class GraniteTurn(CallScanner):
    """Reads what follows the reasoning of one turn."""

    def read(self) -> Script:
        """Read content, and then calls."""
        yield from self.say_until(_STARTS)
        yield from self.call_list()
