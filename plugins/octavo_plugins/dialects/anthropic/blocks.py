"""The blocks of an answer, as events and whole: text, thinking, calls of tools.

Blocks are numbered from 0; each begins, goes on and ends before the next begins (B07).

Knows a turn's events and Anthropic's shapes of blocks. Does not know messages or streams.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Reasoning,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.interfaces.parser import TurnEvent

#: what stands where Anthropic signs its reasoning: clients want some text
SIGNATURE: Final = "unsigned"


class BlockWriter:
    """Turns a choice's events into those of its blocks."""

    def __init__(self) -> None:
        self._index = -1
        self._open: str | None = None

    def write(self, events: Iterable[TurnEvent]) -> Iterator[dict[str, Any]]:
        """Yield the events for what is new."""
        for one in events:
            match one:
                case Content(text):
                    yield from self._begun("text", {"type": "text", "text": ""})
                    yield self._delta({"type": "text_delta", "text": text})
                case Reasoning(text):
                    block = {"type": "thinking", "thinking": "", "signature": ""}
                    yield from self._begun("thinking", block)
                    yield self._delta({"type": "thinking_delta", "thinking": text})
                case CallBegin(_, name):
                    yield from self.end()
                    yield from self._begun("tool_use", _call_block(name, {}))
                case CallArguments(_, text):
                    yield self._delta({"type": "input_json_delta", "partial_json": text})
                case CallEnd():
                    yield from self.end()

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the events that end the open block, if there is one."""
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        self._open = None
        yield {"type": "content_block_stop", "index": self._index}

    def _begun(self, kind: str, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._open == kind:
            return
        yield from self.end()
        self._index += 1
        self._open = kind
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def whole_blocks(events: Iterable[TurnEvent]) -> list[dict[str, Any]]:
    """Return the blocks of a choice that has ended.

    A call that was cut is left out: its input would not be what the model wanted to write (B55).
    """
    blocks: list[dict[str, Any]] = []
    name, arguments = "", ""
    for one in joined(events):
        match one:
            case Content(text):
                blocks.append({"type": "text", "text": text})
            case Reasoning(text):
                blocks.append({"type": "thinking", "thinking": text, "signature": SIGNATURE})
            case CallBegin():
                name, arguments = one.name, ""
            case CallArguments():
                arguments = one.text
            case CallEnd():
                blocks.append(_call_block(name, msgspec.json.decode(arguments or "{}")))
    return blocks


def _call_block(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": f"toolu_{uuid.uuid4().hex[:24]}",
        "name": name,
        "input": arguments,
    }
