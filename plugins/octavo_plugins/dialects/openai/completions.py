"""POST /v1/completions: one prompt or many, as text or ids, each with n choices.

Choice number j of prompt number i has index i * n + j, in whatever order they end (B114).

Knows completions' shapes. Does not know how tokens come about.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from octavo.frontend.preprocess import Call
from octavo.sampling_params import RequestOutputKind
from octavo.serving.generation import start_generation
from octavo.serving.streaming import EventStream, event
from octavo_plugins.dialects.openai import answers
from octavo_plugins.dialects.openai.beams import length_penalty_of, unheeded_by_search
from octavo_plugins.dialects.openai.bodies import CompletionBody
from octavo_plugins.dialects.openai.calls import StreamEnds, UsageCounter
from octavo_plugins.dialects.openai.completion_choices import ChoiceWriter
from octavo_plugins.dialects.openai.params import call_metadata, common_names, completion_params
from octavo_plugins.dialects.shared.calls import renamed, with_salt
from octavo_plugins.dialects.shared.exchange import read_body, reply, report_unheeded
from octavo_plugins.dialects.shared.identity import Identities
from octavo_plugins.dialects.shared.prompts import split_prompts
from octavo_plugins.dialects.shared.replies import encode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from litestar import Request, Response

    from octavo.frontend.outputs import CompletionOutput, RequestOutput
    from octavo.serving.context import ServingContext, Target
    from octavo.serving.generation import Generation
    from octavo.serving.models import ServedModel
    from octavo_plugins.dialects.shared.identity import Identity

MAX_PROMPTS = 1024


class CompletionApi:
    """Answers completions."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._identities = Identities("cmpl-")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes] | EventStream:
        """Answer one request."""
        decoded = await read_body(request, CompletionBody, self._context)
        body = decoded.body
        names = common_names(body)
        with renamed(names):
            target = await self._context.target(body.model, body.blend)
            report_unheeded(decoded, unheeded_by_search(body), self._context)
            model, identity = target.model, self._identities.next(target.name, body.request_id)
            generation = await _start(body, target, identity)
        answer = CompletionAnswerWriter(body, model, identity, generation)
        return await reply(request, decoded, answer, generation, names)


async def _start(body: CompletionBody, target: Target, identity: Identity) -> Generation:
    params = completion_params(body, target.model.preprocessor.default_sampling_params())
    arrival_s = time.monotonic()
    calls = [
        Call(
            request_id=f"{identity.call_id}.{index}",
            prompt=with_salt(prompt, body),
            params=params,
            arrival_s=arrival_s,
            priority=body.priority or 0,
            lora_request=target.adapters,
            add_special_tokens=body.add_special_tokens is not False,
            length_penalty=length_penalty_of(body),
            metadata=call_metadata(body),
        )
        for index, prompt in enumerate(split_prompts(body.prompt, "prompt", MAX_PROMPTS))
    ]
    kind = RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY
    return await start_generation(target.model, calls, kind)


class CompletionAnswerWriter(StreamEnds):
    """Writes the answer to one request, whole or in chunks."""

    def __init__(
        self, body: CompletionBody, model: ServedModel, identity: Identity, generation: Generation
    ) -> None:
        self._body = body
        self._identity = identity
        self._generation = generation
        self._counter = UsageCounter(generation)
        self._n = len(generation.calls[0].requests)
        self._writers = [
            ChoiceWriter(body, model.tokenizer, call, index * self._n + choice)
            for index, call in enumerate(generation.calls)
            for choice in range(self._n)
        ]
        self._held: dict[int, list[CompletionOutput]] = {}

    async def whole(self) -> answers.CompletionAnswer:
        """Return the answer when all choices have ended."""
        choices: list[answers.CompletionChoice] = []
        async for index, output in self._generation:
            self._counter.take(index, output)
            for one in output.outputs:
                writer = self._writers[index * self._n + one.index]
                choices.append(writer.write(one, output.prompt_logprobs))
        choices.sort(key=lambda choice: choice.index)
        answer = self._answer(choices)
        answer.usage = self._counter.usage()
        return answer

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of the answer, without [DONE]."""
        async for index, output in self._generation:
            self._counter.take(index, output)
            chunks = [self._chunk(choice) for choice in self._choices(index, output)]
            if chunks:
                yield b"".join(chunks)
        if self._body.has_usage:
            last = self._answer([])
            last.usage = self._counter.usage()
            yield event(encode(last))

    def _choices(self, index: int, output: RequestOutput) -> list[answers.CompletionChoice]:
        """Return what is new.

        An echo with logprobs waits until the prompt's logprobs are there, which come with the
        first choice.
        """
        news = output.outputs
        if self._body.echo and self._body.logprobs is not None:
            held = self._held.setdefault(index, [])
            if output.prompt_logprobs is not None:
                for choice in range(self._n):
                    self._writers[index * self._n + choice].take_prompt(output.prompt_logprobs)
            held += news
            if self._writers[index * self._n].is_waiting_for_prompt:
                return []
            news, self._held[index] = held, []
        return [self._writers[index * self._n + one.index].write(one, None) for one in news]

    def _chunk(self, choice: answers.CompletionChoice) -> bytes:
        chunk = self._answer([choice])
        if self._body.has_running_usage:
            chunk.usage = self._counter.usage()
        elif self._body.has_usage:
            chunk.usage = None
        return event(encode(chunk))

    def _answer(self, choices: list[answers.CompletionChoice]) -> answers.CompletionAnswer:
        identity = self._identity
        return answers.CompletionAnswer(identity.id, identity.created, identity.model, choices)
