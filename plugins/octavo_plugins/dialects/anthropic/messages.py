"""POST /v1/messages and /v1/messages/count_tokens.

A streamed answer is: message_start, the events of each block, message_delta with the reason of
its end and the usage, message_stop. An error after the beginning is an event `error`, the last.

Knows messages' shapes. Does not know how templates are rendered or tokens come about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import RequestFailedError
from octavo.serving.generation import in_thread_if_long
from octavo.serving.streaming import EventStream, named_event
from octavo_plugins.dialects.anthropic.blocks import BlockWriter, whole_blocks
from octavo_plugins.dialects.anthropic.bodies import CountBody, MessagesBody
from octavo_plugins.dialects.anthropic.errors import error_body
from octavo_plugins.dialects.anthropic.params import (
    NAMES,
    asked_of,
    params_of,
    unheeded,
)
from octavo_plugins.dialects.anthropic.parts import PARTS
from octavo_plugins.dialects.shared.calls import renamed
from octavo_plugins.dialects.shared.counting import TokenCounter
from octavo_plugins.dialects.shared.exchange import (
    read_body,
    reply,
    report_unheeded,
    report_unknown,
)
from octavo_plugins.dialects.shared.identity import Identities
from octavo_plugins.dialects.shared.parts import unread_parts
from octavo_plugins.dialects.shared.replies import encode, json_reply
from octavo_plugins.dialects.shared.turns import rendered, start_turn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from litestar import Request, Response

    from octavo.frontend.outputs import CompletionOutput
    from octavo.frontend.turns import TurnReader
    from octavo.serving.context import ServingContext
    from octavo.serving.generation import Generation
    from octavo.serving.http_errors import ApiError
    from octavo_plugins.dialects.shared.identity import Identity


class MessagesApi:
    """Answers conversations, and counts their tokens."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._identities = Identities("msg_")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes] | EventStream:
        """Answer one request."""
        decoded = await read_body(request, MessagesBody, self._context)
        body = decoded.body
        report_unknown(decoded, unread_parts(body, PARTS), self._context)
        with renamed(NAMES):
            target = await self._context.target(body.model)
            model, identity = target.model, self._identities.next(target.name)
            report_unheeded(decoded, unheeded(body, model), self._context)
            defaults = model.preprocessor.default_sampling_params()
            asked = asked_of(body, params_of(body, defaults, model))
            is_strict = self._context.settings.strict_fields
            turn, generation = await start_turn(
                decoded, asked, target, identity, is_strict=is_strict
            )
        answer = MessageWriter(identity, generation, turn.reader())
        return await reply(request, decoded, answer, generation, NAMES)

    async def count(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Return how many tokens a conversation is; nothing is generated."""
        decoded = await read_body(request, CountBody, self._context)
        body = decoded.body
        report_unknown(decoded, unread_parts(body, PARTS), self._context)
        with renamed(NAMES):
            model = (await self._context.target(body.model)).model
            report_unheeded(decoded, unheeded(body, model), self._context)
            asked = asked_of(body, model.preprocessor.default_sampling_params())
            prompt = await rendered(asked, model, decoded.num_bytes)
            encode_prompt = model.preprocessor.encode
            ids = await in_thread_if_long(len(prompt), lambda: encode_prompt(prompt))
        return json_reply({"input_tokens": len(ids)}, decoded.headers)


class MessageWriter:
    """Writes the answer to one request, whole or in events."""

    def __init__(self, identity: Identity, generation: Generation, reader: TurnReader) -> None:
        self._identity = identity
        self._generation = generation
        self._reader = reader
        self._counter = TokenCounter(generation)
        self._blocks = BlockWriter()

    async def whole(self) -> dict[str, Any]:
        """Return the answer when it has ended."""
        events = []
        end: dict[str, Any] = {}
        async for index, output in self._generation:
            self._counter.take(index, output)
            one = output.outputs[0]
            events += self._reader.push(one.text, one.token_ids)
            if one.finish_reason is not None:
                events += self._reader.finish()
                end = self._end(one)
        return self._message(whole_blocks(events)) | end | {"usage": self._usage()}

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of the answer."""
        is_begun = False
        async for index, output in self._generation:
            self._counter.take(index, output)
            one = output.outputs[0]
            written: list[dict[str, Any]] = []
            if not is_begun:
                is_begun = True
                usage = self._usage() | {"output_tokens": 0}
                message = self._message([]) | {"usage": usage}
                written.append({"type": "message_start", "message": message})
            written += self._blocks.write(self._reader.push(one.text, one.token_ids))
            if one.finish_reason is not None:
                written += self._blocks.write(self._reader.finish())
                written += self._blocks.end()
                written.append(
                    {"type": "message_delta", "delta": self._end(one), "usage": self._usage()}
                )
                written.append({"type": "message_stop"})
            if written:
                yield b"".join(named_event(one["type"], encode(one)) for one in written)

    def failure(self, told: ApiError) -> bytes:
        """Return the event of an error."""
        return named_event("error", error_body(told))

    def last(self) -> bytes:
        """Return nothing: a message's own last event ends its stream."""
        return b""

    def _message(self, blocks: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._identity.id,
            "type": "message",
            "role": "assistant",
            "model": self._identity.model,
            "content": blocks,
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _end(self, one: CompletionOutput) -> dict[str, Any]:
        """Return why the answer ended. Raises RequestFailedError where somebody ended it."""
        if one.finish_reason == "abort":  # there is no such reason in this API
            raise RequestFailedError("the request was ended by an operator")
        sequence = one.stop_reason if isinstance(one.stop_reason, str) else None
        if one.finish_reason == "length":
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        if self._reader.num_calls:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        reason = "end_turn" if sequence is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": sequence}

    def _usage(self) -> dict[str, int]:
        """Return the counts: tokens from the cache are not among the input tokens."""
        counter = self._counter
        return {
            "input_tokens": counter.num_prompt_tokens - counter.num_cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": counter.num_cached_tokens,
            "output_tokens": counter.num_completion_tokens,
        }
