"""Runs calls on an engine in the calling thread: many to their end, or one piece by piece.

Knows the engine's `add`, `step` and `abort`. Does not know how calls were made or what their
text means.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from octavo.errors import EngineError, QueueFullError
from octavo.frontend.interrupts import DeferredInterrupt
from octavo.frontend.output_processor import OutputProcessor
from octavo.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineOutput
    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.preprocess import PreparedCall
    from octavo.frontend.progress import ProgressLine
    from octavo.interfaces.tokenizer import Tokenizer


class OfflineRun:
    """One run. Whatever ends it early (Ctrl-C, an error), its requests leave the engine."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, calls: Sequence[PreparedCall]) -> None:
        self._engine = engine
        self._processors = [
            OutputProcessor(call, tokenizer, kind=RequestOutputKind.FINAL_ONLY) for call in calls
        ]
        self._by_id = {
            request.request_id: processor
            for call, processor in zip(calls, self._processors, strict=True)
            for request in call.requests
        }
        self._waiting = deque(request for call in calls for request in call.requests)
        self._num_tokens = 0
        self._num_finished = 0

    def run(self, progress: ProgressLine) -> list[RequestOutput]:
        """Return the outputs, in the order of the calls."""
        try:
            with DeferredInterrupt() as interrupt:
                while self._num_finished < len(self._processors):
                    self._feed()
                    self._step()
                    rate = self._num_tokens / max(progress.elapsed_s, 1e-9)
                    progress.show(self._num_finished, f"{rate:.0f} tok/s")
                    interrupt.check()
        finally:
            self._engine.abort(i for p in self._processors for i in p.unfinished_ids())
        outputs = [processor.take() for processor in self._processors]
        return [output for output in outputs if output is not None]

    def _feed(self) -> None:
        """Hand over as many requests as the engine lets wait."""
        while self._waiting:
            try:
                self._engine.add(self._waiting[0])
            except QueueFullError:
                if not self._engine.has_work:
                    raise  # it would be full for ever
                return
            self._waiting.popleft()

    def _step(self) -> None:
        aborted = []
        for output in _step(self._engine):
            processor = self._by_id.get(output.request_id)
            if processor is None or processor.is_finished:
                continue  # a request of an earlier run that an error cut off, or a late token
            self._num_tokens += len(output.token_ids)
            aborted += processor.absorb(output, time.monotonic())
            self._num_finished += processor.is_finished
        self._engine.abort(aborted)


def stream_call(
    engine: Engine, tokenizer: Tokenizer, call: PreparedCall
) -> Generator[RequestOutput, None, None]:
    """Run one call, and yield what is new as it comes.

    Closing the generator, or Ctrl-C (KeyboardInterrupt, between two steps), aborts the call.
    """
    processor = OutputProcessor(call, tokenizer, kind=RequestOutputKind.DELTA)
    try:
        for request in call.requests:
            engine.add(request)
        while not processor.is_finished:
            aborted = []
            with DeferredInterrupt():
                for output in _step(engine):
                    aborted += processor.absorb(output, time.monotonic())
                engine.abort(aborted)
            piece = processor.take()
            if piece is not None:
                yield piece
    finally:
        engine.abort(processor.unfinished_ids())


def _step(engine: Engine) -> list[EngineOutput]:
    if not engine.has_work and not engine.wait():
        raise EngineError("the engine has nothing to do, yet requests are unfinished")
    return engine.step()
