"""The base of readers of reasoning between two marks, at the beginning of a turn.

Knows marks. Does not know which, or calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.parser import Content, Reasoning
from octavo.text.marks import Marks
from octavo.text.turn_scanner import TurnScanner

if TYPE_CHECKING:
    from octavo.interfaces.parser import TurnContext
    from octavo.text.turn_scanner import Script


class ReasoningScanner(TurnScanner):
    """Reads reasoning that comes before all else, and then content.

    With `is_open` the turn begins inside of it; a mark that opens it once more is dropped. No
    mark begins another.
    """

    def __init__(
        self,
        context: TurnContext,
        starts: tuple[str, ...],
        ends: tuple[str, ...],
        *,
        is_open: bool = False,
    ) -> None:
        super().__init__(context)
        self._starts = starts
        self._ends = Marks(*ends)
        if is_open:
            self.kind = Reasoning
            self.settle(is_trimmed=True)  # white space after the mark in the prompt

    def read(self) -> Script:
        """Read the whole turn."""
        if (yield from self.take(*self._starts)):
            self.kind = Reasoning
            self.settle(is_trimmed=True)
        self.release()
        if self.kind is Reasoning:
            yield from self.say_until(self._ends)
            self.kind = Content
            self.settle(is_trimmed=True)
        yield from self.rest()


def is_opened_by(prompt: str, start: str) -> bool:
    """Return whether a prompt ends with the mark that opens reasoning."""
    return prompt.rstrip().endswith(start)
