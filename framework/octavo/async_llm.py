"""`AsyncLLM`: a model in this process, for programs with an event loop.

Knows asyncio and how outputs reach who waits for them. Does not know how requests are checked
(`octavo.frontend.preprocess`) or computed; the engine runs in a thread (`octavo.engine_thread`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from octavo.async_streams import LoopStream, call_in_loop
from octavo.engine_thread import EngineThread
from octavo.errors import EngineDeadError, QueueFullError, RequestError
from octavo.frontend.beam_search import BeamSearch
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.pooling import pooling_plan
from octavo.frontend.pooling_outputs import EmbeddingRequestOutput, PoolingRequestOutput
from octavo.frontend.preprocess import Call
from octavo.llm_beams import beam_search_call, beam_search_output
from octavo.local_model import LocalModel, open_model, resolve_settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from octavo.engine.messages import EngineOutput, EngineStats
    from octavo.frontend.outputs import BeamSearchOutput, RequestOutput
    from octavo.frontend.preprocess import PreparedCall
    from octavo.frontend.prompts import Prompt
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.lora import Adapters
    from octavo.pooling_params import PoolingParams
    from octavo.sampling_params import BeamSearchParams, SamplingParams

#: how long a search whose next step finds the queue full waits before it tries again
_RETRY_S = 0.02


class AsyncLLM:
    """A model, loaded (the constructor blocks while it loads). Takes the settings of `LLM`.

        async with AsyncLLM(model="smollm2") as llm:
            async for output in llm.generate("The sea is", SamplingParams(), "my-request"):
                print(output.outputs[0].text)

    Each output holds all text so far, or what is new with `RequestOutputKind.DELTA`. Leaving the
    iteration early aborts the request. Any number of requests may run at once, from any loop.
    """

    def __init__(self, model: str, *, tokenizer: str | None = None, **settings: Any) -> None:
        named = {"model": model} if tokenizer is None else {"model": model, "tokenizer": tokenizer}
        self._start(open_model(resolve_settings({**named, **settings})))

    def _start(self, model: LocalModel) -> None:
        self._model = model
        self._streams: dict[str, LoopStream] = {}  # by the caller's request id
        self._by_engine_id: dict[str, LoopStream] = {}
        self._request_numbers = itertools.count()
        self._thread = EngineThread(model.engine, self._on_outputs, self._on_death)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the model, without holding up the loop."""
        await asyncio.to_thread(self.close)

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: Adapters = None,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Continue a prompt; yields as text comes, in the form `output_kind` asks for.

        `lora_request` is an adapter, or several as a blend: their changes add up.

        Raises RequestError (a ValueError) for a bad request, RequestFailedError when the engine
        gives up on it, EngineDeadError when the engine as a whole has failed or is closed.
        """
        params = sampling_params or self._model.preprocessor.default_sampling_params()
        call = Call(
            request_id=self._id_of(request_id),
            prompt=prompt,
            params=params,
            arrival_s=time.monotonic(),
            priority=priority,
            lora_request=lora_request,
            reasoning=self._model.reasoning_marks(prompt, params),
        )
        async with aclosing(self._outputs(call)) as outputs:
            async for output in outputs:
                yield output

    async def embed(
        self,
        prompt: Prompt,
        pooling_params: PoolingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: Adapters = None,
        priority: int = 0,
    ) -> EmbeddingRequestOutput:
        """Return a vector of a prompt, as `LLM.embed` does. Raises as `generate` does.

        Cancelling it aborts the request.
        """
        checks = self._model.preprocessor
        plan = pooling_plan(pooling_params, checks.defaults.pooling, checks.info)
        call = Call(
            request_id=self._id_of(request_id),
            prompt=prompt,
            params=plan.sampling,
            arrival_s=time.monotonic(),
            priority=priority,
            lora_request=lora_request,
            pooling=plan,
        )
        async with aclosing(self._outputs(call)) as outputs:
            output = [one async for one in outputs][-1]
        return EmbeddingRequestOutput.of(PoolingRequestOutput.of(output, plan))

    async def beam_search(
        self,
        prompt: Prompt,
        params: BeamSearchParams,
        request_id: str | None = None,
        *,
        lora_request: Adapters = None,
        priority: int = 0,
    ) -> BeamSearchOutput:
        """Return the likeliest texts after a prompt, as `LLM.beam_search` does.

        Raises as `generate` does. Cancelling it aborts the search. A step that finds the engine's
        queue full waits for its turn; only the first is refused.
        """
        call = replace(
            beam_search_call(self._id_of(request_id), prompt, params),
            lora_request=lora_request,
            priority=priority,
        )
        prepared = await self._prepare(call)
        search = BeamSearch(prepared, self._model.tokenizer)
        stream = LoopStream(search)
        with self._following(call.request_id, stream):
            await self._hand_over(stream)
            async for _ in stream.turns():
                await self._next_step(search, stream)
        return beam_search_output(search, call, self._model.tokenizer)

    async def _outputs(self, call: Call) -> AsyncGenerator[RequestOutput, None]:
        """Run one call, and yield its outputs. Leaving the iteration aborts it."""
        processor = OutputProcessor(await self._prepare(call), self._model.tokenizer)
        stream = LoopStream(processor)
        with self._following(call.request_id, stream):
            await self._hand_over(stream)
            async for _ in stream.turns():
                while (output := processor.take()) is not None:
                    yield output  # more may come while the reader has it

    async def abort(self, request_id: str) -> None:
        """End a request; its iteration ends with `finish_reason` "abort". Unknown ids do nothing.

        `request_id` is the one given to `generate`.
        """
        stream = self._streams.get(request_id)
        if stream is None:
            return
        engine_ids = stream.follower.unfinished_ids()
        if isinstance(stream.follower, BeamSearch):  # else the next step might just be on its way
            call_in_loop(stream.loop, _end_search, stream)
        await asyncio.wrap_future(self._thread.abort(engine_ids))

    def get_tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self._model.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Return what the model's files advise, as `generate` uses without parameters."""
        return self._model.preprocessor.default_sampling_params()

    async def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes. Returns whether all of them could be forgotten."""
        return await asyncio.wrap_future(self._thread.call(self._model.engine.reset_prefix_cache))

    async def get_metrics(self) -> EngineStats:
        """Return a snapshot of the engine's counters and gauges."""
        return await asyncio.wrap_future(self._thread.call(self._model.engine.stats))

    def close(self) -> None:
        """End the engine; iterations that still run raise EngineDeadError. Twice is fine."""
        self._thread.close()
        self._on_death(EngineDeadError("the engine is closed"))

    def _id_of(self, request_id: str | None) -> str:
        return f"call-{next(self._request_numbers)}" if request_id is None else request_id

    async def _prepare(self, call: Call) -> PreparedCall:
        if call.priority:
            self._model.warn_of_priority()
        return await asyncio.to_thread(self._model.preprocessor.prepare, call)

    @contextmanager
    def _following(self, request_id: str, stream: LoopStream) -> Iterator[None]:
        """Have a stream told of its requests; what still runs at the end is aborted."""
        if request_id in self._streams:
            raise RequestError(f"request id {request_id!r} is in use", param="request_id")
        self._streams[request_id] = stream
        try:
            yield
        finally:
            self._streams.pop(request_id, None)
            self._forget(stream)
            self._abort(stream.follower.unfinished_ids())

    async def _hand_over(self, stream: LoopStream) -> None:
        """Hand the engine what a stream has to be run. Raises as `EngineThread.add` does."""
        requests = stream.follower.next_requests()
        if requests:
            self._forget(stream)
            stream.engine_ids = [request.request_id for request in requests]
            self._by_engine_id.update(dict.fromkeys(stream.engine_ids, stream))
            await asyncio.wrap_future(self._thread.add(requests))

    async def _next_step(self, search: BeamSearch, stream: LoopStream) -> None:
        """Hand the engine the next step of a search, as soon as it takes one."""
        while True:
            try:
                return await self._hand_over(stream)
            except QueueFullError:
                search.refused()
                await asyncio.sleep(_RETRY_S)

    def _forget(self, stream: LoopStream) -> None:
        for engine_id in stream.engine_ids:
            self._by_engine_id.pop(engine_id, None)

    def _abort(self, engine_ids: list[str]) -> None:
        if engine_ids:
            with suppress(EngineDeadError):  # then nothing is left to abort
                self._thread.abort(engine_ids)

    # ------------------------------------------------------------------ in the engine's thread

    def _on_outputs(self, outputs: Sequence[EngineOutput]) -> None:
        by_stream: dict[LoopStream, list[EngineOutput]] = {}
        for output in outputs:
            stream = self._by_engine_id.get(output.request_id)
            if stream is not None:
                by_stream.setdefault(stream, []).append(output)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[LoopStream, list[EngineOutput]]]] = {}
        for stream, news in by_stream.items():
            by_loop.setdefault(stream.loop, []).append((stream, news))
        for loop, pairs in by_loop.items():
            call_in_loop(loop, self._deliver, pairs)

    def _on_death(self, error: EngineDeadError) -> None:
        for stream in list(self._streams.values()):
            call_in_loop(stream.loop, stream.fail, error)

    # ------------------------------------------------------------------ in the event loop

    def _deliver(self, pairs: list[tuple[LoopStream, list[EngineOutput]]]) -> None:
        now_s = time.monotonic()
        aborted = [engine_id for stream, news in pairs for engine_id in stream.feed(news, now_s)]
        self._abort(aborted)


def _end_search(stream: LoopStream) -> None:
    """End a search, whether or not one of its steps runs just now."""
    if isinstance(stream.follower, BeamSearch):
        stream.follower.abort()
    stream.wake()
