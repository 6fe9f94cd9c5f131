"""Turns of gpt-oss: messages of the Harmony format, told apart by their channels.

What is in `analysis` is reasoning, a message to `functions.NAME` is a call, all else is content.

Source: the Harmony response format (openai/harmony) and the chat template of openai/gpt-oss-20b.
Knows these marks. Does not know built-in tools: a message to one of them is content.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import (
    CallTag,
    Content,
    Example,
    Reasoning,
    ReasoningMarks,
    ToolSpec,
    TurnContext,
)
from octavo.text.marks import Marks
from octavo.text.turn_scanner import TurnScanner
from octavo.text.turn_teller import MalformedError
from octavo_plugins.parsers.family import WITHOUT_TOOLS, Family, calling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.text.turn_scanner import Script

START, CHANNEL, MESSAGE, FORMAT = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|return|>", "<|call|>")
FINAL = f"{CHANNEL}final{MESSAGE}"
_THINKING = f"{CHANNEL}analysis{MESSAGE}"
_MARKS, _HEAD_ENDS = Marks(START, CHANNEL, *ENDS), Marks(MESSAGE)
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_FUNCTIONS = "functions."


class GptOss(Family):
    """A turn is one message or more; the prompt has written the beginning of the first."""

    visible_markers = frozenset({START, CHANNEL, MESSAGE, FORMAT, *ENDS})
    template_has: ClassVar = (CHANNEL, MESSAGE)

    def open(self, context: TurnContext) -> GptOssTurn:
        """Return a reader for one turn."""
        return GptOssTurn(context)

    def reasoning_marks(self, context: TurnContext) -> ReasoningMarks:
        """Return what ends all that comes before the answer, unless the prompt has written it."""
        is_open = not context.prompt.endswith(FINAL)
        return ReasoningMarks("", FINAL, is_open)

    def call_tag(self, tool: ToolSpec) -> CallTag:
        """Return how a call is written."""
        trigger = f"{CHANNEL}commentary to={_FUNCTIONS}"
        return CallTag(trigger, f"{trigger}{tool.name} {FORMAT}json{MESSAGE}", ENDS[2])

    def examples(self) -> Sequence[Example]:
        """Return a turn that thinks and answers, one that does more, and one that calls alone."""
        answer = f"{_THINKING}Two and two.<|end|>{START}assistant{FINAL}Four.<|return|>"
        calls = (
            f"{_THINKING}Hm.<|end|>{START}assistant{CHANNEL}commentary{MESSAGE}Let me look.<|end|>"
            f"{START}assistant{CHANNEL}commentary to=functions.get_weather {FORMAT}json{MESSAGE}"
            f'{{"city": "Ærø", "days": 2}}<|call|>'
            f"{START}assistant to=functions.get_time{CHANNEL}commentary json{MESSAGE}{{}}<|call|>"
        )
        return [
            Example(WITHOUT_TOOLS, answer, [Reasoning("Two and two."), Content("Four.")]),
            calling(calls, Reasoning("Hm."), Content("Let me look.")),
            calling(calls.partition("Let me look.<|end|>")[2]),
        ]


class GptOssTurn(TurnScanner):
    """Reads one turn, message by message."""

    def __init__(self, context: TurnContext) -> None:
        super().__init__(context)
        self._is_raw = False  # within a call that is none, whose marks are shown
        if context.prompt.endswith(_THINKING):
            self.kind = Reasoning
            self.settle()

    def read(self) -> Script:
        """Read on to the end of a message, or to the beginning of what the next one says."""
        mark = yield from self.say_until(_MARKS)
        if mark in ENDS:
            self._end_message()
            return
        head = yield from self.hold_until(_HEAD_ENDS)
        if found := _RECIPIENT.search(head):
            yield from self._call(found.group(1))
            return
        channel = head.rpartition(CHANNEL)[2].strip()
        self.settle()
        self.kind = Reasoning if channel.startswith("analysis") else Content

    def _end_message(self) -> None:
        if self._is_raw:
            self.release()
        else:
            self.settle()
        self._is_raw = False
        self.kind = Content

    def _call(self, recipient: str) -> Script:
        self._is_raw = True
        if not recipient.startswith(_FUNCTIONS):
            raise MalformedError
        yield from self.arguments(recipient.removeprefix(_FUNCTIONS))
        self._is_raw = False
        self.kind = Content
