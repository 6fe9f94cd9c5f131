"""The items of an answer, and the events that build them: messages, reasoning, calls.

Each item is added, grows and is done before the next is added. A whole answer has the items that
its events would have built.

Knows a turn's events and OpenAI's shapes of items. Does not know responses or streams.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from octavo.interfaces.parser import CallArguments, CallBegin, CallEnd, Content, Reasoning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.interfaces.parser import TurnEvent


class ItemWriter:
    """Builds `items` of a turn's events, and yields what a stream tells of it."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._open: str | None = None
        self._texts: list[str] = []

    def write(self, events: Iterable[TurnEvent]) -> Iterator[dict[str, Any]]:
        """Yield the events for what is new."""
        for one in events:
            match one:
                case Content(text):
                    yield from self._begin_part("message", {"role": "assistant"})
                    yield self._grown("response.output_text.delta", text, logprobs=[])
                case Reasoning(text):
                    yield from self._begin_part("reasoning", {"summary": []})
                    yield self._grown("response.reasoning_text.delta", text)
                case CallBegin(_, name):
                    yield from self.end()
                    call = {"call_id": _id("call"), "name": name, "arguments": ""}
                    yield self._begin("function_call", call)
                case CallArguments(_, text):
                    yield self._event(
                        "response.function_call_arguments.delta", delta=self._keep(text)
                    )
                case CallEnd():
                    yield from self.end()

    def end(self, status: str = "completed") -> Iterator[dict[str, Any]]:
        """Yield the events that end the open item, if there is one."""
        if self._open is None:
            return
        item, text = self.items[-1], "".join(self._texts)
        if self._open == "function_call":
            item["arguments"] = text
            yield self._event(
                "response.function_call_arguments.done", name=item["name"], arguments=text
            )
        else:
            part = _part(self._open, text)
            item["content"] = [part]
            if self._open == "message":
                yield self._event(
                    "response.output_text.done", content_index=0, text=text, logprobs=[]
                )
            else:
                yield self._event("response.reasoning_text.done", content_index=0, text=text)
            yield self._event("response.content_part.done", content_index=0, part=part)
        item["status"] = status
        self._open = None
        yield self._item_event("response.output_item.done")

    def _begin_part(self, kind: str, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what begins an item of one part, unless it is open already."""
        if self._open == kind:
            return
        yield from self.end()
        yield self._begin(kind, fields | {"content": []})
        yield self._event("response.content_part.added", content_index=0, part=_part(kind, ""))

    def _begin(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        self._open, self._texts = kind, []
        prefix = {"message": "msg", "reasoning": "rs"}.get(kind, "fc")
        item = {"id": _id(prefix), "type": kind, "status": "in_progress", **fields}
        self.items.append(item)
        return self._item_event("response.output_item.added")

    def _keep(self, text: str) -> str:
        self._texts.append(text)
        return text

    def _grown(self, kind: str, text: str, **fields: Any) -> dict[str, Any]:
        return self._event(kind, content_index=0, delta=self._keep(text), **fields)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        place = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        return {"type": kind, **place, **fields}

    def _item_event(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "output_index": len(self.items) - 1, "item": dict(self.items[-1])}


def _part(kind: str, text: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
