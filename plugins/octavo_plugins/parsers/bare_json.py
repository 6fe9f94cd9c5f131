"""Calls that are a turn's whole text: JSON objects, or a list of them, without a mark.

`json` is for models of no known family whose template tells of tools. Llama 3 writes
`parameters`, several objects with semicolons between, and at times a mark before them.

Source: the chat template of meta-llama/Llama-3.1-8B-Instruct. Knows JSON's brackets and that
mark. Does not know reasoning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import CallTag, Content, Example, ToolSpec, TurnContext
from octavo.text.call_scanner import CallScanner
from octavo.text.marks import Marks
from octavo.text.turn_teller import compact_json
from octavo_plugins.parsers.family import WITH_TOOLS, Family, calling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.text.turn_scanner import Script

PYTHON = "<|python_tag|>"
_FENCE, _FENCE_END = "```json", "```"
_STARTS = Marks(PYTHON)


class BareJson(Family):
    """A text that begins otherwise than with a bracket has no calls."""

    template_has: ClassVar = ("tools",)

    def open(self, context: TurnContext) -> BareJsonTurn:
        """Return a reader for one turn."""
        return BareJsonTurn(context)

    def examples(self) -> Sequence[Example]:
        """Return a list of calls, and a text."""
        calls = (
            '[{"name": "get_weather", "arguments": {"city": "Ærø", "days": 2}}, '
            '{"name": "get_time", "parameters": {}}]'
        )
        other = '{"answer": 4}'
        return [
            calling(calls),
            calling(f"```json\n{calls}\n```"),
            Example(WITH_TOOLS, other, [Content(other)]),
        ]


class BareJsonTurn(CallScanner):
    """Reads one turn."""

    has_failed = False

    def read(self) -> Script:
        """Read the calls that a turn begins with; behind what is none, all is content."""
        if self.has_failed:
            yield from self.rest()
        self.has_failed = True
        is_fenced = bool((yield from self.take(_FENCE)))
        yield from self.skip_space()
        if self.next_char == "[":
            yield from self.call_list()
        elif self.next_char == "{":
            yield from self.call_object()
        else:
            self.release()
            yield from self.rest()
        self.has_failed = False
        if is_fenced:
            yield from self.close(_FENCE_END)


class Llama3Json(Family):
    """Objects at the beginning of a turn, or behind the mark."""

    visible_markers = frozenset({PYTHON})
    template_has: ClassVar = ('"parameters":', "<|eot_id|>")
    template_lacks: ClassVar = ("<|tool_call|>",)

    def open(self, context: TurnContext) -> Llama3JsonTurn:
        """Return a reader for one turn."""
        return Llama3JsonTurn(context)

    def call_tag(self, tool: ToolSpec) -> CallTag:
        """Return how a call is written."""
        begin = f'{{"name": {compact_json(tool.name)}, "parameters": '
        return CallTag('{"name": ', begin, "}")

    def examples(self) -> Sequence[Example]:
        """Return a turn that begins with calls, and one with text and the mark."""
        calls = (
            '{"name": "get_weather", "parameters": {"city": "Ærø", "days": 2}}; '
            '{"name": "get_time", "parameters": {}}'
        )
        return [calling(calls), calling(f"Look.\n{PYTHON}{calls}", Content("Look.\n"))]


class Llama3JsonTurn(CallScanner):
    """Reads one turn."""

    has_begun = False

    def read(self) -> Script:
        """Read the calls at the beginning, or those behind a mark."""
        if not self.has_begun:
            self.has_begun = True
            yield from self.skip_space()
            if self.next_char == "{":
                yield from self._calls()
            self.release()
        yield from self.say_until(_STARTS)
        yield from self._calls()

    def _calls(self) -> Script:
        yield from self.call_object()
        while True:
            is_more = yield from self.close(";")
            yield from self.skip_space()
            if not is_more and self.next_char != "{":
                return
            yield from self.call_object()
