"""Two readers of a turn, one behind the other: the content of the first is the text of the second.

Knows events. Does not know what is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.parser import Content, TurnParser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.interfaces.parser import TurnEvent


class ChainedTurn(TurnParser):
    """Reads by both."""

    def __init__(self, first: TurnParser, second: TurnParser) -> None:
        self._first = first
        self._second = second

    def push(self, text: str) -> list[TurnEvent]:
        """Return what this piece makes certain for both."""
        return self._through(self._first.push(text))

    def finish(self) -> list[TurnEvent]:
        """Return what either held back."""
        return [*self._through(self._first.finish()), *self._second.finish()]

    def _through(self, events: Iterable[TurnEvent]) -> list[TurnEvent]:
        found: list[TurnEvent] = []
        for one in events:
            found += self._second.push(one.text) if isinstance(one, Content) else [one]
        return found
