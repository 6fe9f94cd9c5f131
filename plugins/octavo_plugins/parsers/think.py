"""Reasoning between `<think>` and `</think>`, which most families write.

The prompt may have opened it already (Qwen 3 2507, DeepSeek V3.1, MiniMax M2), or opened and
closed it, where the model is not to reason. A mark that comes later in a turn is content.

Source: the chat templates of deepseek-ai/DeepSeek-R1, Qwen/Qwen3, zai-org/GLM-4.5,
moonshotai/Kimi-K2-Thinking and MiniMaxAI/MiniMax-M2. Knows these marks. Does not know calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.interfaces.parser import (
    Content,
    Example,
    Reasoning,
    ReasoningMarks,
    TurnContext,
)
from octavo.text.reasoning_scanner import ReasoningScanner, is_opened_by
from octavo_plugins.parsers.family import WITHOUT_TOOLS, Family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.parser import TurnEvent

START, END = "<think>", "</think>"


class Think(Family):
    """Reasoning comes first, if it comes."""

    visible_markers = frozenset({START, END})
    template_has: ClassVar = (END,)

    def open(self, context: TurnContext) -> ReasoningScanner:
        """Return a reader for one turn."""
        is_open = is_opened_by(context.prompt, START)
        return ReasoningScanner(context, (START,), (END,), is_open=is_open)

    def reasoning_marks(self, context: TurnContext) -> ReasoningMarks:
        """Return the marks."""
        return ReasoningMarks(START, END, is_opened_by(context.prompt, START))

    def examples(self) -> Sequence[Example]:
        """Return a turn with its own mark, one that the prompt opened, and one without."""
        opened = TurnContext(prompt="<|im_start|>assistant\n<think>\n")
        events: list[TurnEvent] = [Reasoning("Two and two."), Content("Four.")]
        return [
            Example(WITHOUT_TOOLS, "<think>\nTwo and two.\n</think>\n\nFour.", events),
            Example(opened, "Two and two.\n</think>\n\nFour.", events),
            Example(WITHOUT_TOOLS, "<think>\n\n</think>\n\nFour.", [Content("Four.")]),
            Example(WITHOUT_TOOLS, "Four.", [Content("Four.")]),
        ]
