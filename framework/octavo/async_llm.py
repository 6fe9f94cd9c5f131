"""`AsyncLLM`: a model in this process, for programs with an event loop.

Knows asyncio and how outputs reach who waits for them. Does not know how requests are checked
(`octavo.frontend.preprocess`) or computed; the engine runs in a thread (`octavo.engine_thread`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Self

from octavo.engine_thread import EngineThread
from octavo.errors import EngineDeadError, RequestError
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.pooling import pooling_plan
from octavo.frontend.pooling_outputs import EmbeddingRequestOutput, PoolingRequestOutput
from octavo.frontend.preprocess import Call
from octavo.local_model import LocalModel, open_model, resolve_settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from octavo.engine.messages import EngineOutput, EngineStats
    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.prompts import Prompt
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.lora import Adapters
    from octavo.pooling_params import PoolingParams
    from octavo.sampling_params import SamplingParams


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
        self._streams: dict[str, _Stream] = {}  # by the caller's request id
        self._by_engine_id: dict[str, _Stream] = {}
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
            request_id=f"call-{next(self._request_numbers)}" if request_id is None else request_id,
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
            request_id=f"call-{next(self._request_numbers)}" if request_id is None else request_id,
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

    async def _outputs(self, call: Call) -> AsyncGenerator[RequestOutput, None]:
        """Run one call, and yield its outputs. Leaving the iteration aborts it."""
        if call.priority:
            self._model.warn_of_priority()
        prepared = await asyncio.to_thread(self._model.preprocessor.prepare, call)
        stream = _Stream(OutputProcessor(prepared, self._model.tokenizer))
        self._register(call.request_id, stream)
        try:
            await asyncio.wrap_future(self._thread.add(prepared.requests))
            async for output in stream.outputs():
                yield output
        finally:
            self._forget(call.request_id, stream)

    async def abort(self, request_id: str) -> None:
        """End a request; its iteration ends with `finish_reason` "abort". Unknown ids do nothing.

        `request_id` is the one given to `generate`.
        """
        stream = self._streams.get(request_id)
        if stream is not None:
            await asyncio.wrap_future(self._thread.abort(stream.processor.unfinished_ids()))

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

    def _register(self, request_id: str, stream: _Stream) -> None:
        if request_id in self._streams:
            raise RequestError(f"request id {request_id!r} is in use", param="request_id")
        self._streams[request_id] = stream
        for engine_id in stream.processor.unfinished_ids():
            self._by_engine_id[engine_id] = stream

    def _forget(self, request_id: str, stream: _Stream) -> None:
        self._streams.pop(request_id, None)
        for request in stream.processor.call.requests:
            self._by_engine_id.pop(request.request_id, None)
        self._abort(stream.processor.unfinished_ids())

    def _abort(self, engine_ids: list[str]) -> None:
        if engine_ids:
            with suppress(EngineDeadError):  # then nothing is left to abort
                self._thread.abort(engine_ids)

    # ------------------------------------------------------------------ in the engine's thread

    def _on_outputs(self, outputs: Sequence[EngineOutput]) -> None:
        by_stream: dict[_Stream, list[EngineOutput]] = {}
        for output in outputs:
            stream = self._by_engine_id.get(output.request_id)
            if stream is not None:
                by_stream.setdefault(stream, []).append(output)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Stream, list[EngineOutput]]]] = {}
        for stream, news in by_stream.items():
            by_loop.setdefault(stream.loop, []).append((stream, news))
        for loop, pairs in by_loop.items():
            _call_in_loop(loop, self._deliver, pairs)

    def _on_death(self, error: EngineDeadError) -> None:
        for stream in list(self._streams.values()):
            _call_in_loop(stream.loop, stream.fail, error)

    # ------------------------------------------------------------------ in the event loop

    def _deliver(self, pairs: list[tuple[_Stream, list[EngineOutput]]]) -> None:
        now_s = time.monotonic()
        aborted = [engine_id for stream, news in pairs for engine_id in stream.feed(news, now_s)]
        self._abort(aborted)


class _Stream:
    """One call on its way to whoever iterates over it."""

    def __init__(self, processor: OutputProcessor) -> None:
        self.processor = processor
        self.loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._error: Exception | None = None

    def feed(self, outputs: Sequence[EngineOutput], now_s: float) -> list[str]:
        """Take news of the engine. Returns the engine requests to abort."""
        aborted = []
        for output in outputs:
            aborted += self.processor.absorb(output, now_s)
            if output.finish_reason == "error":
                self._error = output.failure()
        self._wake.set()
        return aborted

    def fail(self, error: Exception) -> None:
        """End the iteration with an error, unless all has come already."""
        if not self.processor.is_finished:
            self._error = error
        self._wake.set()

    async def outputs(self) -> AsyncGenerator[RequestOutput, None]:
        """Yield what comes until the call is finished. Raises what `fail` was given."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._error is not None:
                raise self._error
            while (output := self.processor.take()) is not None:
                yield output  # more may come while the reader has it
            if self.processor.is_finished:
                return


def _call_in_loop(loop: asyncio.AbstractEventLoop, function: Any, argument: Any) -> None:
    """Schedule a call in a loop; a loop that is closed has nobody left who waits."""
    try:
        loop.call_soon_threadsafe(function, argument)
    except RuntimeError:
        if not loop.is_closed():
            raise
