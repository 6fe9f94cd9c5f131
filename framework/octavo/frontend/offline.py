"""Runs calls on an engine in the calling thread: many to their end, or one piece by piece.

Knows the engine's `add`, `step` and `abort`. Does not know how calls were made or what their
text means.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from octavo.errors import EngineError, QueueFullError
from octavo.faults import deadly
from octavo.frontend.interrupts import DeferredInterrupt
from octavo.frontend.output_processor import OutputProcessor
from octavo.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineOutput, EngineRequest
    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.preprocess import PreparedCall
    from octavo.frontend.progress import ProgressLine
    from octavo.interfaces.tokenizer import Tokenizer


class Follower(Protocol):
    """Follows one call: an `OutputProcessor`, or a `BeamSearch`, which goes on with requests."""

    @property
    def is_finished(self) -> bool:
        """Return whether all has come."""

    def next_requests(self) -> list[EngineRequest]:
        """Return the requests that are to be run now, each once."""

    def absorb(self, output: EngineOutput, now_s: float) -> list[str]:
        """Take one output. Returns the requests to abort."""

    def unfinished_ids(self) -> list[str]:
        """Return the requests that still run."""


class OfflineRun:
    """One run. Whatever ends it early (Ctrl-C, an error), its requests leave the engine."""

    def __init__(self, engine: Engine, followers: Sequence[Follower]) -> None:
        self._engine = engine
        self._followers = followers
        self._by_id: dict[str, Follower] = {}
        self._waiting: deque[EngineRequest] = deque()
        self._num_tokens = 0
        self._num_finished = 0
        for follower in followers:
            self._queue_requests(follower)

    def run(self, progress: ProgressLine) -> None:
        """Run all to their end."""
        try:
            with DeferredInterrupt() as interrupt:
                while self._num_finished < len(self._followers):
                    self._feed()
                    self._step()
                    rate = self._num_tokens / max(progress.elapsed_s, 1e-9)
                    progress.show(self._num_finished, f"{rate:.0f} tok/s")
                    interrupt.check()
        finally:
            _abort(self._engine, (i for one in self._followers for i in one.unfinished_ids()))

    def _queue_requests(self, follower: Follower) -> None:
        for request in follower.next_requests():
            self._by_id[request.request_id] = follower
            self._waiting.append(request)

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
            follower = self._by_id.get(output.request_id)
            if follower is None or follower.is_finished:
                continue  # a request of an earlier run that an error cut off, or a late token
            self._num_tokens += len(output.token_ids)
            aborted += follower.absorb(output, time.monotonic())
            self._num_finished += follower.is_finished
            if output.finish_reason is not None:
                del self._by_id[output.request_id]
                self._queue_requests(follower)
        _abort(self._engine, aborted)


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
                _abort(engine, aborted)
            piece = processor.take()
            if piece is not None:
                yield piece
    finally:
        _abort(engine, processor.unfinished_ids())


def _step(engine: Engine) -> list[EngineOutput]:
    if not engine.has_work and not engine.wait():
        raise EngineError("the engine has nothing to do, yet requests are unfinished")
    with deadly():
        return engine.step()


def _abort(engine: Engine, request_ids: Iterable[str]) -> None:
    with deadly():  # also that of an engine whose allocator has failed already
        engine.abort(request_ids)
