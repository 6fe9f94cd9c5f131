"""Calls as MiniMax M2 writes them, in tags, and M1, as JSON objects one a line.

Source: the chat templates of MiniMaxAI/MiniMax-M2 and MiniMaxAI/MiniMax-M1. Knows these marks. Does
not know types of arguments (`parameters`), or reasoning, which `think` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import Content, Example, TurnContext
from octavo.text.call_scanner import CallScanner
from octavo.text.marks import Marks
from octavo_plugins.parsers.family import Family, calling
from octavo_plugins.parsers.parameters import ParameterScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.parser import ChatFacts
    from octavo.text.turn_scanner import Script

START, END = "<minimax:tool_call>", "</minimax:tool_call>"
LINES, LINES_END = "<tool_calls>", "</tool_calls>"
INVOKE, INVOKE_END = '<invoke name="', "</invoke>"
PARAMETER, PARAMETER_END = '<parameter name="', "</parameter>"
_STARTS = Marks(START, LINES)
_NAME_ENDS = Marks('">')
_VALUE_ENDS = Marks(PARAMETER_END)


class MiniMax(Family):
    """Several calls may stand between one pair of marks."""

    visible_markers = frozenset({START, END, LINES, LINES_END})
    template_has: ClassVar = (START,)

    def why_not(self, facts: ChatFacts) -> list[str]:
        """Return why a template is neither of the two."""
        return [] if LINES in facts.template else super().why_not(facts)

    def open(self, context: TurnContext) -> MiniMaxTurn:
        """Return a reader for one turn."""
        return MiniMaxTurn(context)

    def examples(self) -> Sequence[Example]:
        """Return a turn of M2 and one of M1."""
        tags = (
            'Let me look.\n<minimax:tool_call>\n<invoke name="get_weather">\n'
            '<parameter name="city">Ærø</parameter>\n<parameter name="days">2</parameter>\n'
            '</invoke>\n<invoke name="get_time">\n</invoke>\n</minimax:tool_call>'
        )
        lines = (
            'Let me look.\n<tool_calls>\n{"name": "get_weather", "arguments": '
            '{"city": "Ærø", "days": 2}}\n{"name": "get_time", "arguments": {}}\n</tool_calls>'
        )
        return [calling(tags, Content("Let me look.\n")), calling(lines, Content("Let me look.\n"))]


class MiniMaxTurn(ParameterScanner, CallScanner):
    """Reads one turn."""

    def read(self) -> Script:
        """Read content, and the calls between one pair of marks."""
        if (yield from self.say_until(_STARTS)) == LINES:
            yield from self.call_object()
            while not (yield from self.close(LINES_END)):
                yield from self.call_object()
            return
        while (yield from self.expect(INVOKE, END)) == INVOKE:
            yield from self._invoke()
        self.settle()

    def _invoke(self) -> Script:
        name = yield from self.hold_until(_NAME_ENDS)
        while (yield from self.expect(PARAMETER, INVOKE_END)) == PARAMETER:
            key = yield from self.hold_until(_NAME_ENDS)
            self.begin_once(name)
            yield from self.parameter(key, _VALUE_ENDS)
        self.begin_once(name)
        self.end_parameters()
