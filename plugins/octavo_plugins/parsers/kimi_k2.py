"""Calls as Kimi K2 writes them: an id that holds the name and a number, then JSON.

Source: the chat template of moonshotai/Kimi-K2-Instruct. Knows these marks. Does not know
reasoning, which `think` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import CallTag, Content, Example, ToolSpec, TurnContext
from octavo.text.marks import Marks
from octavo_plugins.parsers.family import Family, calling
from octavo_plugins.parsers.sections import SectionTurn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.text.turn_scanner import Script

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = (
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
)  # fmt: skip
#: calls of one turn that have a number when a grammar holds the model to it
_MOST_CALLS = 32
_STARTS, _HEAD_ENDS = Marks(SECTION, CALL), Marks(ARGUMENTS)


class KimiK2(Family):
    """`functions.get_weather:0` is the first call of a turn."""

    visible_markers = frozenset({SECTION, SECTION_END, CALL, ARGUMENTS, CALL_END})
    template_has: ClassVar = (CALL, ARGUMENTS)

    def open(self, context: TurnContext) -> KimiK2Turn:
        """Return a reader for one turn."""
        return KimiK2Turn(context)

    def call_tag(self, tool: ToolSpec) -> CallTag:
        """Return how a call is written, by its number in the turn."""
        first, *others = (
            f"{CALL}functions.{tool.name}:{number}{ARGUMENTS}" for number in range(_MOST_CALLS)
        )
        return CallTag(CALL, first, CALL_END, tuple(others))

    def examples(self) -> Sequence[Example]:
        """Return a turn with text and two calls."""
        text = (
            f"Let me look.{SECTION}{CALL}functions.get_weather:0{ARGUMENTS}"
            f'{{"city": "Ærø", "days": 2}}{CALL_END}'
            f"{CALL}functions.get_time:1{ARGUMENTS}{{}}{CALL_END}{SECTION_END}"
        )
        return [calling(text, Content("Let me look."))]


class KimiK2Turn(SectionTurn):
    """Reads one turn."""

    section, section_end, call, starts = SECTION, SECTION_END, CALL, _STARTS

    def read_call(self) -> Script:
        """Read the name and the arguments of a call."""
        head = (yield from self.hold_until(_HEAD_ENDS)).strip()
        name, colon, number = head.rpartition(":")
        head = name if colon and number.isdigit() else head
        yield from self.arguments(head.removeprefix("functions."))
        yield from self.close(CALL_END)
