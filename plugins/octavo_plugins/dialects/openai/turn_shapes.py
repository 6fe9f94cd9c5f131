"""What a turn is made of, in the shapes of a chat's answer: messages, and the deltas of a stream.

Knows events and OpenAI's names for them. Does not know how they come about, or streams.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal, TypeAlias

from octavo.frontend.turns import WholeTurn
from octavo.interfaces.parser import CallArguments, CallBegin, Content, Reasoning
from octavo_plugins.dialects.openai.answers import CalledFunction, Delta, Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from octavo.interfaces.parser import TurnEvent

ROLE = "assistant"
ReasoningField: TypeAlias = Literal["both", "reasoning", "reasoning_content"]


class TurnShapes:
    """Writes turns with reasoning under the names that were chosen; None leaves it out."""

    def __init__(self, field: ReasoningField | None) -> None:
        self._field = field

    def message(self, events: Iterable[TurnEvent]) -> Message:
        """Return a whole turn. Without text its content is null, where it has anything else."""
        turn = WholeTurn.of(events)
        has_more = bool(turn.calls or turn.reasoning)
        message = Message(ROLE, turn.content or (None if has_more else ""))
        if turn.reasoning:
            self._set_reasoning(message, turn.reasoning)
        if turn.calls:
            message.tool_calls = [
                ToolCall(CalledFunction(call.name, call.arguments), id=_call_id(), type="function")
                for call in turn.calls
            ]
        return message

    def delta(self, events: Sequence[TurnEvent]) -> Delta | None:
        """Return what events add to a turn, None where nothing is to be seen.

        Pieces of one call are one entry: clients put entries of a list side by side.
        """
        reasoning = "".join(one.text for one in events if isinstance(one, Reasoning))
        content = "".join(one.text for one in events if isinstance(one, Content))
        calls = _entries(events)
        is_hidden = self._field is None and bool(reasoning)
        if not content and not calls and (is_hidden or not reasoning):
            return None
        delta = Delta()
        if content:
            delta.content = content
        if reasoning:
            self._set_reasoning(delta, reasoning)
        if calls:
            delta.tool_calls = calls
        return delta

    def _set_reasoning(self, shape: Message | Delta, text: str) -> None:
        if self._field in {"both", "reasoning"}:
            shape.reasoning = text
        if self._field in {"both", "reasoning_content"}:
            shape.reasoning_content = text


def _entries(events: Iterable[TurnEvent]) -> list[ToolCall]:
    entries: dict[int, ToolCall] = {}
    for one in events:
        if isinstance(one, CallBegin):
            function = CalledFunction(one.name)
            entries[one.index] = ToolCall(function, one.index, _call_id(), "function")
        elif isinstance(one, CallArguments):
            entry = entries.setdefault(one.index, ToolCall(CalledFunction(), one.index))
            entry.function.arguments += one.text
    return list(entries.values())


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
