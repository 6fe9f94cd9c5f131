"""Calls that stand in a section of their own, or alone: how such a turn is read.

Knows the order of marks. Does not know the marks of any family, or what stands within a call.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from octavo.text.turn_scanner import TurnScanner

if TYPE_CHECKING:
    from octavo.text.marks import Marks
    from octavo.text.turn_scanner import Script


class SectionTurn(TurnScanner):
    """Reads one turn. `starts` are the marks of a section and of a call."""

    section: ClassVar[str]
    section_end: ClassVar[str]
    call: ClassVar[str]
    starts: ClassVar[Marks]

    def read(self) -> Script:
        """Read content, and the calls of a section."""
        if (yield from self.say_until(self.starts)) == self.section:
            yield from self.expect(self.call)
        yield from self.read_call()
        while (yield from self.close(self.call, self.section_end)) == self.call:
            yield from self.read_call()

    @abstractmethod
    def read_call(self) -> Script:
        """Read a call, from behind its mark to behind the mark of its end."""
