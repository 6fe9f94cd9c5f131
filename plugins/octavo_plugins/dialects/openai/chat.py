"""POST /v1/chat/completions.

A streamed answer is, for each choice: a chunk with the role, chunks with content, one chunk with
the finish reason; then the usage, if asked for, and [DONE].

Knows chat's shapes. Does not know how templates are rendered or tokens come about.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from octavo.frontend.preprocess import Call
from octavo.sampling_params import RequestOutputKind
from octavo.serving.generation import in_thread_if_long, start_generation
from octavo.serving.streaming import EventStream, event
from octavo_plugins.dialects.openai import answers
from octavo_plugins.dialects.openai.bodies import ChatBody
from octavo_plugins.dialects.openai.calls import StreamEnds, UsageCounter
from octavo_plugins.dialects.openai.logprobs import LogprobsWriter
from octavo_plugins.dialects.openai.params import call_metadata, chat_names, chat_params
from octavo_plugins.dialects.shared.calls import renamed, with_salt
from octavo_plugins.dialects.shared.conversations import Conversation, check_messages, render
from octavo_plugins.dialects.shared.exchange import read_body, reply
from octavo_plugins.dialects.shared.identity import Identities
from octavo_plugins.dialects.shared.replies import encode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from litestar import Request, Response

    from octavo.frontend.outputs import CompletionOutput, RequestOutput
    from octavo.serving.context import ServingContext, Target
    from octavo.serving.generation import Generation
    from octavo.serving.models import ServedModel
    from octavo_plugins.dialects.shared.identity import Identity

ROLE = "assistant"


class ChatApi:
    """Answers chats."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._identities = Identities("chatcmpl-")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes] | EventStream:
        """Answer one request."""
        decoded = await read_body(request, ChatBody, self._context)
        body = decoded.body
        names = chat_names(body)
        with renamed(names):
            target = await self._context.target(body.model, body.blend)
            model, identity = target.model, self._identities.next(target.name, body.request_id)
            generation = await self._start(body, target, identity, decoded.num_bytes)
        answer = ChatAnswerWriter(body, model, identity, generation)
        return await reply(request, decoded, answer, generation, names)

    async def _start(
        self, body: ChatBody, target: Target, identity: Identity, num_bytes: int
    ) -> Generation:
        model = target.model
        params = chat_params(body, model.preprocessor.default_sampling_params())
        check_messages(body.messages, model)
        conversation = _conversation(body)
        text = await in_thread_if_long(num_bytes, lambda: render(conversation, model))
        call = Call(
            request_id=identity.call_id,
            prompt=with_salt(text, body),
            params=params,
            arrival_s=time.monotonic(),
            priority=body.priority or 0,
            lora_request=target.adapters,
            add_special_tokens=bool(body.add_special_tokens),
            metadata=call_metadata(body),
        )
        kind = RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY
        return await start_generation(model, [call], kind)


def _conversation(body: ChatBody) -> Conversation:
    return Conversation(
        messages=body.messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        documents=body.documents,
        template_kwargs=body.chat_template_kwargs,
    )


class ChatAnswerWriter(StreamEnds):
    """Writes the answer to one chat, whole or in chunks."""

    def __init__(
        self, body: ChatBody, model: ServedModel, identity: Identity, generation: Generation
    ) -> None:
        self._body = body
        self._identity = identity
        self._generation = generation
        self._counter = UsageCounter(generation)
        self._logprobs = LogprobsWriter(
            model.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)
        )
        self._started: set[int] = set()

    async def whole(self) -> answers.ChatAnswer:
        """Return the answer when all choices have ended."""
        choices: list[answers.ChatChoice] = []
        answer = answers.ChatAnswer(
            self._identity.id, self._identity.created, self._identity.model, choices,
            self._counter.usage(),
        )  # fmt: skip
        async for index, output in self._generation:
            self._counter.take(index, output)
            choices += [self._choice(one) for one in output.outputs]
            if output.prompt_logprobs is not None and self._body.prompt_logprobs is not None:
                answer.prompt_logprobs = self._logprobs.prompt(output.prompt_logprobs)
        choices.sort(key=lambda choice: choice.index)
        answer.usage = self._counter.usage()
        if self._body.return_token_ids:
            answer.prompt_token_ids = self._generation.calls[0].prompt_token_ids
        return answer

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of the answer, without [DONE]."""
        async for index, output in self._generation:
            self._counter.take(index, output)
            yield b"".join(self._chunks(output))
        if self._body.has_usage:
            yield self._event(None, self._counter.usage())

    def _choice(self, one: CompletionOutput) -> answers.ChatChoice:
        return answers.ChatChoice(
            one.index,
            answers.Message(ROLE, one.text),
            self._logprobs_of(one),
            one.finish_reason,
            one.stop_reason,
            one.token_ids if self._body.return_token_ids else UNSET,
        )

    def _chunks(self, output: RequestOutput) -> list[bytes]:
        """Return the events for what is new."""
        chunks: list[bytes] = []
        for one in output.outputs:
            if one.index not in self._started:
                self._started.add(one.index)
                chunks.append(self._first_event(one.index))
            if one.text:
                chunks.append(self._event(self._part(one, answers.Delta(content=one.text))))
            if one.finish_reason is not None:
                # last tokens without visible text come with the end, not as an empty delta
                end = answers.Delta()
                part = answers.ChunkChoice(one.index, end) if one.text else self._part(one, end)
                part.finish_reason, part.stop_reason = one.finish_reason, one.stop_reason
                chunks.append(self._event(part))
        return chunks

    def _part(self, one: CompletionOutput, delta: answers.Delta) -> answers.ChunkChoice:
        """Return what is new of a choice with what was asked for beside its text."""
        part = answers.ChunkChoice(one.index, delta, self._logprobs_of(one))
        if self._body.return_token_ids:
            part.token_ids = one.token_ids
        return part

    def _first_event(self, index: int) -> bytes:
        """Return the event that names the role.

        It goes out with the first token and not before, so that a client's time to the first
        event is its time to the first token.
        """
        part = answers.ChunkChoice(index, answers.Delta(role=ROLE, content=""))
        return self._event(part, is_first=True)

    def _event(
        self,
        choice: answers.ChunkChoice | None,
        usage: answers.Usage | None = None,
        *,
        is_first: bool = False,
    ) -> bytes:
        identity = self._identity
        chunk = answers.ChatChunk(
            identity.id, identity.created, identity.model, [] if choice is None else [choice]
        )
        if usage is not None or self._body.has_usage or self._body.has_running_usage:
            chunk.usage = self._counter.usage() if self._body.has_running_usage else usage
        if is_first and self._body.return_token_ids:
            chunk.prompt_token_ids = self._generation.calls[0].prompt_token_ids
        return event(encode(chunk))

    def _logprobs_of(self, one: CompletionOutput) -> answers.ChatLogprobs | None:
        if one.logprobs is None:
            return None
        return self._logprobs.chat(one.logprobs, self._body.top_logprobs or 0)
