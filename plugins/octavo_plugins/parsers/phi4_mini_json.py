"""Calls as Phi 4 mini writes them: a list of JSON objects behind a mark, or behind `functools`.

Source: the chat template and model card of microsoft/Phi-4-mini-instruct. Knows these marks. Does
not know reasoning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import Content, Example, ListTag, TurnContext
from octavo.text.call_scanner import CallScanner
from octavo.text.marks import Marks
from octavo_plugins.parsers.family import Family, calling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.text.turn_scanner import Script

START, END, WORD = "<|tool_call|>", "<|/tool_call|>", "functools"
_STARTS = Marks(START, WORD)


class Phi4MiniJson(Family):
    """The word is a mark only where a list follows."""

    visible_markers = frozenset({START, END})
    template_has: ClassVar = ("<|tool|>",)

    def open(self, context: TurnContext) -> Phi4MiniJsonTurn:
        """Return a reader for one turn."""
        return Phi4MiniJsonTurn(context)

    def list_tag(self) -> ListTag:
        """Return how calls are written behind the mark; behind the word nothing holds them."""
        return ListTag(START, "arguments", END)

    def examples(self) -> Sequence[Example]:
        """Return a turn with each of the two."""
        calls = (
            '[{"name": "get_weather", "arguments": {"city": "Ærø", "days": 2}}, '
            '{"name": "get_time", "arguments": {}}]'
        )
        return [calling(f"Look: {START}{calls}{END}", Content("Look: ")), calling(WORD + calls)]


class Phi4MiniJsonTurn(CallScanner):
    """Reads one turn."""

    def read(self) -> Script:
        """Read content, and then calls."""
        yield from self.say_until(_STARTS)
        yield from self.call_list()
        yield from self.close(END)
