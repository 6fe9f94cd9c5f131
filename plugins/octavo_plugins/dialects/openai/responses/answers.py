"""The answer to POST /v1/responses, whole or in events.

A stream is: response.created, response.in_progress, the events of each item, and the end, which is
response.completed, .incomplete or .failed. Its events are numbered from 0.

Knows the shape of a response. Does not know how text is read (`octavo.frontend.turns`), or items.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from octavo.serving.streaming import named_event
from octavo_plugins.dialects.openai.responses.items import ItemWriter
from octavo_plugins.dialects.shared.counting import TokenCounter
from octavo_plugins.dialects.shared.replies import encode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.turns import Turn
    from octavo.serving.generation import Generation
    from octavo.serving.http_errors import ApiError
    from octavo_plugins.dialects.openai.responses.bodies import ResponsesBody
    from octavo_plugins.dialects.openai.responses.store import Record, ResponseStore
    from octavo_plugins.dialects.shared.identity import Identity
    from octavo_plugins.dialects.shared.turns import Asked

_IN_PROGRESS = "in_progress"


def new_response(body: ResponsesBody, asked: Asked, identity: Identity) -> dict[str, Any]:
    """Return a response that has just begun."""
    reasoning = body.reasoning or {}
    return {
        "id": identity.id,
        "object": "response",
        "created_at": identity.created,
        "completed_at": None,
        "status": _IN_PROGRESS,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": identity.model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "store": body.store is not False,
        "temperature": asked.params.temperature,
        "text": {"format": (body.text or {}).get("format") or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": asked.params.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }


class ResponseWriter:
    """Writes one answer, and keeps its record up to date where there is a store."""

    def __init__(
        self, record: Record, generation: Generation, turn: Turn, store: ResponseStore | None
    ) -> None:
        self._record = record
        self._response = record.response
        self._generation = generation
        self._store = store
        self._counter = TokenCounter(generation)
        self._reader = turn.reader(generation.prompts[0].processor.tokenizer)
        self._items = ItemWriter()
        self._response["output"] = self._items.items
        self._num_events = 0

    async def whole(self) -> dict[str, Any]:
        """Return the answer when it has ended."""
        async for _ in self._progress():
            pass
        return self._response

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of the answer."""
        begun = [self._told("response.created"), self._told("response.in_progress")]
        yield b"".join(map(self._event, begun))
        async for written in self._progress():
            if written:
                yield b"".join(map(self._event, written))
        is_done = self._response["status"] == "completed"
        yield self._event(self._told(f"response.{'completed' if is_done else 'incomplete'}"))

    def failure(self, told: ApiError) -> bytes:
        """Return the event of an error."""
        self._response["status"] = "failed"
        self._response["error"] = {"code": told.code or "server_error", "message": told.message}
        self._keep()
        return self._event(self._told("response.failed"))

    def last(self) -> bytes:
        """Return nothing: a response's own last event ends its stream."""
        return b""

    async def _progress(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yield the events of items as they come; the response has ended afterwards."""
        try:
            async for index, output in self._generation:
                self._counter.take(index, output)
                yield self._absorb(output)
        finally:
            if self._response["status"] == _IN_PROGRESS:  # nobody reads on, or it failed
                self._response["status"] = "cancelled"
                list(self._items.end("incomplete"))  # what there is of it stays
            self._record.cancel = None
            self._keep()

    def _absorb(self, output: RequestOutput) -> list[dict[str, Any]]:
        (one,) = output.outputs
        written = [*self._items.write(self._reader.push(one.text, one.token_ids))]
        if one.finish_reason is not None:
            written += self._items.write(self._reader.finish())
            is_whole = one.finish_reason == "stop"
            written += self._items.end("completed" if is_whole else "incomplete")
            self._end(one.finish_reason)
        return written

    def _end(self, reason: str) -> None:
        response = self._response
        response["usage"] = self._usage()
        response["status"] = {"stop": "completed", "length": "incomplete"}.get(reason, "cancelled")
        if reason == "length":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        if reason == "stop":
            response["completed_at"] = int(time.time())

    def _usage(self) -> dict[str, Any]:
        counter = self._counter
        num_input, num_output = counter.num_prompt_tokens, counter.num_completion_tokens
        return {
            "input_tokens": num_input,
            "input_tokens_details": {"cached_tokens": counter.num_cached_tokens},
            "output_tokens": num_output,
            "output_tokens_details": {"reasoning_tokens": self._reader.num_reasoning_tokens},
            "total_tokens": num_input + num_output,
        }

    def _keep(self) -> None:
        if self._store is not None and self._store.has(self._response["id"]):
            self._store.put(self._record)

    def _told(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "response": self._response}

    def _event(self, fields: dict[str, Any]) -> bytes:
        number, self._num_events = self._num_events, self._num_events + 1
        return named_event(fields["type"], encode(fields | {"sequence_number": number}))
