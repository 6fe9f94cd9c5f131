"""What readers of turns say: events, white space that belongs to marks, and what is held back.

White space beside a mark of reasoning belongs to the mark. That beside a call belongs to the call
where no text is: between two calls, before the first, behind the last. Beside text it is content.

Knows events and their order. Does not know how text is read (`turn_scanner`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Reasoning,
    TurnEvent,
    TurnParser,
    joined,
)

if TYPE_CHECKING:
    from octavo.interfaces.parser import TurnContext


class MalformedError(Exception):
    """What is held is no call: it becomes content as it was written.

    Where a call had begun, it cannot be ended, and all that follows is content.
    """


class TurnTeller(TurnParser):
    """Keeps what is to be told of a turn, without white space that belongs to marks."""

    def __init__(self, context: TurnContext) -> None:
        self.tools = {tool.name: tool for tool in context.tools}
        self.kind: type[Content | Reasoning] = Content
        self.is_in_call = False
        self._held: list[str] = []  # what was read and may be no mark after all
        self._space: list[str] = []  # white space that a mark may follow
        self._has_text = False  # since the last mark, or the beginning
        self._is_beside_mark = False
        self._is_trimmed = False  # behind that mark
        self._num_calls = 0
        self._events: list[TurnEvent] = []

    def say(self, text: str) -> None:
        """Say text of the kind that is being read: content, or reasoning."""
        is_thought = self.kind is Reasoning
        if self._is_beside_mark and (self._is_trimmed or is_thought):
            text = text.lstrip()
        body = text.rstrip()
        if not is_thought and (body or self._has_text):
            body = text
        if body:
            self._emit(self.kind("".join(self._space) + body))
            self._space.clear()
            self._has_text, self._is_beside_mark = True, False
        if len(body) < len(text):
            self._space.append(text[len(body) :])

    def say_call(self, name: str, arguments: str) -> None:
        """Say a whole call. Raises MalformedError for a tool that is not offered."""
        self.begin(name)
        self.argue(arguments)
        self.end()

    def begin(self, name: str) -> None:
        """Say that a call begins. Raises as `say_call`."""
        if name not in self.tools:
            raise MalformedError
        self.settle()
        self._emit(CallBegin(self._num_calls, name))
        self.is_in_call = True

    def argue(self, text: str) -> None:
        """Say a piece of the arguments of the call that has begun; what is held is part of it."""
        self._held.clear()
        if text:
            self._emit(CallArguments(self._num_calls, text))

    def end(self) -> None:
        """Say that the call that has begun is complete."""
        self.settle()
        self._emit(CallEnd(self._num_calls))
        self._num_calls += 1
        self.is_in_call = False

    def settle(self, *, is_trimmed: bool = False) -> None:
        """What is held was a mark or a call: nothing of it is said.

        With `is_trimmed` the white space behind it belongs to it in any case.
        """
        self._held.clear()
        self._space.clear()
        self._has_text, self._is_beside_mark, self._is_trimmed = False, True, is_trimmed

    def release(self) -> None:
        """What is held was no mark: it is said as content, where it is more than white space."""
        held, self._held = "".join(self._held), []
        if held.strip():
            self.kind = Content
        self.say(held)

    def told_at_end(self) -> list[TurnEvent]:
        """Do as `told`, where no mark follows any more."""
        if not self._is_beside_mark:
            self._emit(self.kind("".join(self._space)))
        return self.told()

    def _emit(self, event: TurnEvent) -> None:
        if not isinstance(event, Content | Reasoning) or event.text:
            self._events.append(event)

    def told(self) -> list[TurnEvent]:
        """Return the events since this was last asked."""
        events, self._events = self._events, []
        return joined(events)


def compact_json(value: Any) -> str:
    """Return a value as JSON, as it is written in arguments."""
    return json.dumps(value, ensure_ascii=False)
