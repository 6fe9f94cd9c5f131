"""The answer to a chat, whole or as a stream.

A streamed answer is, for each choice: a chunk with the role, chunks with what is new, one chunk
with the finish reason; then the usage, if asked for, and [DONE].

Knows the shape of chunks. Does not know how text is read (`octavo.frontend.turns`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from octavo.interfaces.parser import joined
from octavo.serving.streaming import event
from octavo_plugins.dialects.openai import answers
from octavo_plugins.dialects.openai.calls import StreamEnds, UsageCounter
from octavo_plugins.dialects.openai.logprobs import LogprobsWriter
from octavo_plugins.dialects.openai.prompt_texts import prompt_text
from octavo_plugins.dialects.openai.turn_shapes import ROLE, TurnShapes
from octavo_plugins.dialects.shared.replies import encode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from octavo.frontend.outputs import CompletionOutput, Logprob, RequestOutput
    from octavo.frontend.turns import Turn, TurnReader
    from octavo.interfaces.parser import TurnEvent
    from octavo.serving.generation import Generation
    from octavo_plugins.dialects.openai.bodies import ChatBody
    from octavo_plugins.dialects.openai.turn_shapes import ReasoningField
    from octavo_plugins.dialects.shared.identity import Identity


class _Choice:
    """One choice of a stream: its reader, and tokens of which nothing was told yet."""

    def __init__(self, reader: TurnReader) -> None:
        self.reader = reader
        self.is_started = False
        self.token_ids: list[int] = []
        self.logprobs: list[Mapping[int, Logprob]] | None = None

    def read(self, one: CompletionOutput) -> list[TurnEvent]:
        """Return what is new of the choice, and keep its tokens until something is told."""
        self.token_ids += one.token_ids
        if one.logprobs is not None:
            self.logprobs = [*(self.logprobs or ()), *one.logprobs]
        events = self.reader.push(one.text, one.token_ids)
        if one.finish_reason is not None:
            events = joined([*events, *self.reader.finish()])
        return events

    def told(self) -> None:
        """Forget the tokens that were told."""
        self.token_ids = []
        self.logprobs = None if self.logprobs is None else []


class ChatAnswerWriter(StreamEnds):
    """Writes the answer to one chat. `shown` is how reasoning is called, None for not at all."""

    def __init__(
        self,
        body: ChatBody,
        identity: Identity,
        generation: Generation,
        turn: Turn,
        shown: ReasoningField | None,
    ) -> None:
        self._body = body
        self._identity = identity
        self._generation = generation
        self._turn = turn
        self._shapes = TurnShapes(shown)
        self._counter = UsageCounter(generation)
        self._tokenizer = generation.prompts[0].processor.tokenizer
        self._logprobs = LogprobsWriter(
            self._tokenizer, as_ids=bool(body.return_tokens_as_token_ids)
        )
        self._choices: dict[int, _Choice] = {}

    async def whole(self) -> answers.ChatAnswer:
        """Return the answer when all choices have ended."""
        choices: list[answers.ChatChoice] = []
        answer = answers.ChatAnswer(
            self._identity.id, self._identity.created, self._identity.model, choices, self._usage()
        )
        async for index, output in self._generation:
            self._counter.take(index, output)
            choices += [self._whole_choice(one) for one in output.outputs]
            if output.prompt_logprobs is not None and self._body.prompt_logprobs is not None:
                answer.prompt_logprobs = self._logprobs.prompt(output.prompt_logprobs)
        choices.sort(key=lambda choice: choice.index)
        answer.usage = self._usage()
        if self._body.return_token_ids:
            answer.prompt_token_ids = self._generation.calls[0].prompt_token_ids
        if self._body.return_prompt_text:
            answer.prompt_text = prompt_text(self._generation.calls[0], self._tokenizer)
        return answer

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of the answer, without [DONE]."""
        async for index, output in self._generation:
            self._counter.take(index, output)
            if chunks := self._chunks(output):
                yield b"".join(chunks)
        if self._body.has_usage:
            yield self._event(None, self._usage())

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice(self._turn.reader(self._tokenizer))
        return self._choices[index]

    def _usage(self) -> answers.Usage:
        if not self._turn.reads_reasoning:
            return self._counter.usage()
        readers = (choice.reader for choice in self._choices.values())
        return self._counter.usage(sum(reader.num_reasoning_tokens for reader in readers))

    def _whole_choice(self, one: CompletionOutput) -> answers.ChatChoice:
        choice = self._choice(one.index)
        message = self._shapes.message(choice.read(one))
        return answers.ChatChoice(
            one.index,
            message,
            self._logprobs_of(choice),
            choice.reader.finish_reason(one.finish_reason),
            one.stop_reason,
            one.token_ids if self._body.return_token_ids else UNSET,
        )

    def _chunks(self, output: RequestOutput) -> list[bytes]:
        """Return the events for what is new."""
        chunks: list[bytes] = []
        for one in output.outputs:
            choice = self._choice(one.index)
            delta = self._shapes.delta(choice.read(one))
            if not choice.is_started:
                choice.is_started = True
                chunks.append(self._first_event(one.index))
            if delta is not None:
                chunks.append(self._event(self._part(one.index, choice, delta)))
            if one.finish_reason is not None:
                # last tokens without visible text come with the end, not as an empty delta
                end = answers.Delta()
                part = answers.ChunkChoice(one.index, end)
                if delta is None:
                    part = self._part(one.index, choice, end)
                part.finish_reason = choice.reader.finish_reason(one.finish_reason)
                part.stop_reason = one.stop_reason
                chunks.append(self._event(part))
        return chunks

    def _part(self, index: int, choice: _Choice, delta: answers.Delta) -> answers.ChunkChoice:
        """Return what is new of a choice with what was asked for beside its text."""
        part = answers.ChunkChoice(index, delta, self._logprobs_of(choice))
        if self._body.return_token_ids:
            part.token_ids = choice.token_ids
        choice.told()
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
            chunk.usage = self._usage() if self._body.has_running_usage else usage
        if is_first and self._body.return_token_ids:
            chunk.prompt_token_ids = self._generation.calls[0].prompt_token_ids
        if is_first and self._body.return_prompt_text:
            chunk.prompt_text = prompt_text(self._generation.calls[0], self._tokenizer)
        return event(encode(chunk))

    def _logprobs_of(self, choice: _Choice) -> answers.ChatLogprobs | None:
        if choice.logprobs is None:
            return None
        # tokens that were asked for by name are all told, whatever their rank
        num_top = -1 if self._body.logprob_token_ids else self._body.top_logprobs or 0
        return self._logprobs.chat(choice.logprobs, num_top)
