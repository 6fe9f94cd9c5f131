"""Calls as DeepSeek V3 and R1 write them, in fences of Markdown, and V3.1, without.

Source: the chat templates of deepseek-ai/DeepSeek-V3-0324, DeepSeek-R1-0528 and DeepSeek-V3.1.
Knows these marks. Does not know reasoning, which `think` reads.
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

SECTION, SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
_KIND, _FENCE, _FENCE_END = "function", "```json", "```"
_STARTS = Marks(SECTION, CALL)
_HEAD_ENDS, _LINE_ENDS = Marks(SEPARATOR), Marks("\n")


class DeepSeekV31(Family):
    """The name stands before the separator, and bare JSON behind it."""

    visible_markers = frozenset({SECTION, SECTION_END, CALL, CALL_END, SEPARATOR})
    template_has: ClassVar[tuple[str, ...]] = (CALL, SEPARATOR)
    template_lacks: ClassVar[tuple[str, ...]] = (_FENCE,)

    def open(self, context: TurnContext) -> DeepSeekTurn:
        """Return a reader for one turn."""
        return DeepSeekTurn(context)

    def call_tag(self, tool: ToolSpec) -> CallTag:
        """Return how a call is written."""
        return CallTag(CALL, f"{CALL}{tool.name}{SEPARATOR}", CALL_END)

    def examples(self) -> Sequence[Example]:
        """Return a turn with text and two calls."""
        text = (
            f'Let me look.{SECTION}{CALL}get_weather{SEPARATOR}{{"city": "Ærø", "days": 2}}'
            f"{CALL_END}{CALL}get_time{SEPARATOR}{{}}{CALL_END}{SECTION_END}"
        )
        return [calling(text, Content("Let me look."))]


class DeepSeekV3(DeepSeekV31):
    """The kind of tool stands before the separator, the name and a fence behind it."""

    template_has: ClassVar[tuple[str, ...]] = (CALL, SEPARATOR, _FENCE)
    template_lacks: ClassVar[tuple[str, ...]] = ()

    def call_tag(self, tool: ToolSpec) -> CallTag:
        """Return how a call is written."""
        begin = f"{CALL}{_KIND}{SEPARATOR}{tool.name}\n{_FENCE}\n"
        return CallTag(CALL, begin, f"\n{_FENCE_END}{CALL_END}")

    def examples(self) -> Sequence[Example]:
        """Return a turn with text and two calls."""
        text = (
            f"Let me look.{SECTION}{CALL}{_KIND}{SEPARATOR}get_weather\n{_FENCE}\n"
            f'{{"city": "Ærø", "days": 2}}\n{_FENCE_END}{CALL_END}\n'
            f"{CALL}{_KIND}{SEPARATOR}get_time\n{_FENCE}\n{{}}\n{_FENCE_END}{CALL_END}{SECTION_END}"
        )
        return [calling(text, Content("Let me look."))]


class DeepSeekTurn(SectionTurn):
    """Reads one turn, as either of the two is written."""

    section, section_end, call, starts = SECTION, SECTION_END, CALL, _STARTS

    def read_call(self) -> Script:
        """Read the name and the arguments of a call."""
        name = (yield from self.hold_until(_HEAD_ENDS)).strip()
        is_fenced = name == _KIND and _KIND not in self.tools
        if is_fenced:
            name = (yield from self.hold_until(_LINE_ENDS)).strip()
            yield from self.expect(_FENCE)
        yield from self.arguments(name)
        if is_fenced:
            yield from self.close(_FENCE_END)
        yield from self.close(CALL_END)
