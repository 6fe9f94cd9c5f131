"""Calls as Qwen 3 Coder writes them: functions and parameters in tags, between `<tool_call>`.

Source: the chat template of Qwen/Qwen3-Coder-480B-A35B-Instruct. Knows these marks. Does not know
types of arguments (`parameters`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Example,
    TurnContext,
)
from octavo.text.marks import Marks
from octavo_plugins.parsers.family import WITH_TOOLS, Family, calling
from octavo_plugins.parsers.parameters import ParameterScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.parser import TurnEvent
    from octavo.text.turn_scanner import Script

START, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
#: the model leaves the outer mark out at times
_STARTS = Marks(START, FUNCTION)
_VALUE_ENDS = Marks(f"\n{PARAMETER_END}", PARAMETER_END)
_NAME_ENDS = Marks(">")


class Qwen3Coder(Family):
    """Each value stands on lines of its own."""

    visible_markers = frozenset({START, END})
    template_has: ClassVar = (START, FUNCTION, PARAMETER)

    def open(self, context: TurnContext) -> Qwen3CoderTurn:
        """Return a reader for one turn."""
        return Qwen3CoderTurn(context)

    def examples(self) -> Sequence[Example]:
        """Return a turn with text and two calls, and one without the outer mark before it."""
        text = (
            "Let me look.\n<tool_call>\n<function=get_weather>\n"
            "<parameter=city>\nÆrø\n</parameter>\n"
            "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=get_time>\n</function>\n</tool_call>"
        )
        number = (
            "<function=get_weather>\n<parameter=city>\n1984\n</parameter>\n"
            "<parameter=days>\nmany\n</parameter>\n<parameter=at>\n[1, 2]\n</parameter>\n"
            "</function>\n</tool_call>"
        )
        arguments = '{"city": "1984", "days": "many", "at": [1, 2]}'
        once: list[TurnEvent] = [
            CallBegin(0, "get_weather"),
            CallArguments(0, arguments),
            CallEnd(0),
        ]
        return [calling(text, Content("Let me look.\n")), Example(WITH_TOOLS, number, once)]


class Qwen3CoderTurn(ParameterScanner):
    """Reads one turn."""

    def read(self) -> Script:
        """Read content, and then a call."""
        if (yield from self.say_until(_STARTS)) == START:
            yield from self.expect(FUNCTION)
        name = (yield from self.hold_until(_NAME_ENDS)).strip()
        while (yield from self.expect(PARAMETER, FUNCTION_END)) == PARAMETER:
            key = yield from self.hold_until(_NAME_ENDS)
            self.begin_once(name)
            yield from self.take_here("\n")
            yield from self.parameter(key.strip(), _VALUE_ENDS)
        self.begin_once(name)
        self.end_parameters()
        yield from self.close(END)
