"""Calls as GLM 4.5 to 4.7 write them: a name, then pairs of keys and values in tags.

Source: the chat templates of zai-org/GLM-4.5 and GLM-4.7. Knows these marks. Does not know types of
arguments (`parameters`), or reasoning, which `think` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import Content, Example, TurnContext
from octavo.text.marks import Marks
from octavo_plugins.parsers.family import Family, calling
from octavo_plugins.parsers.parameters import ParameterScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.text.turn_scanner import Script

START, END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"
_STARTS = Marks(START)
_NAME_ENDS = Marks(KEY, END)
_KEY_ENDS, _VALUE_ENDS = Marks(KEY_END), Marks(VALUE_END)


class Glm(Family):
    """Values stand as they are between their marks."""

    visible_markers = frozenset({START, END, KEY, KEY_END, VALUE, VALUE_END})
    template_has: ClassVar = (START, KEY)

    def open(self, context: TurnContext) -> GlmTurn:
        """Return a reader for one turn."""
        return GlmTurn(context)

    def examples(self) -> Sequence[Example]:
        """Return a turn with text and two calls, the second in one line as GLM 4.7 writes it."""
        text = (
            "Let me look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
            "<arg_value>Ærø</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
            "</tool_call>\n<tool_call>get_time</tool_call>"
        )
        return [calling(text, Content("Let me look.\n"))]


class GlmTurn(ParameterScanner):
    """Reads one turn."""

    def read(self) -> Script:
        """Read content, and then a call."""
        yield from self.say_until(_STARTS)
        name = yield from self.hold_until(_NAME_ENDS)
        mark = self.last_mark
        while mark == KEY:
            key = yield from self.hold_until(_KEY_ENDS)
            yield from self.expect(VALUE)
            self.begin_once(name.strip())
            yield from self.parameter(key.strip(), _VALUE_ENDS)
            mark = yield from self.expect(KEY, END)
        self.begin_once(name.strip())
        self.end_parameters()
