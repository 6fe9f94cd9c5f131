"""A batch on its way: so many requests at once, each answered in one line, whatever happens.

Knows requests, answers and the order of things. Does not know HTTP's details, terminals or engines.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.batch.calls import post
from octavo.batch.lines import Answer, output_line, tokens_of
from octavo.serving.http_errors import api_error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from octavo.batch.calls import App
    from octavo.batch.files import BatchOutput
    from octavo.batch.lines import BatchRequest

_logger = logging.getLogger("octavo.batch")

#: the engine died under the request, or had no room for it: what others did may be to blame
_NOT_ITS_FAULT = (429, 503)
_OK = 200
_POLL_S = 0.05
_SETTLED_AT_ONCE = 1000


@dataclass(slots=True)
class Progress:
    """How far a batch is. `num_before` lines were answered by earlier runs."""

    num_before: int = 0
    num_answered: int = 0
    num_failed: int = 0
    done_bytes: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    started_s: float = field(default_factory=time.monotonic)

    @property
    def num_lines(self) -> int:
        """Return how many lines have an answer."""
        return self.num_before + self.num_answered + self.num_failed

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.started_s


class BatchRun:
    """Answers the requests of a batch. When `run` is cancelled, those that run are aborted.

    A request that fails with the engine under it is done again when nothing else runs, so that
    one that kills the engine fails alone.

    `is_up` tells whether the engines can be asked; it raises when one never will be again.
    """

    def __init__(
        self, app: App, output: BatchOutput, is_up: Callable[[], bool], max_concurrency: int
    ) -> None:
        self.progress = Progress()
        self._app = app
        self._output = output
        self._is_up = is_up
        self._max_concurrency = max_concurrency
        self._running: dict[asyncio.Task[Answer], BatchRequest] = {}
        self._put_aside: list[BatchRequest] = []
        self._is_at_end = False

    async def run(
        self, requests: Iterable[BatchRequest], on_progress: Callable[[Progress], None]
    ) -> None:
        """Answer all. Raises the engine's error when it cannot be kept running."""
        waiting = self._to_send(requests)
        try:
            while True:
                await self._until_up()
                self._fill(waiting)
                on_progress(self.progress)
                if self._running:
                    await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                    self._collect()
                elif self._put_aside:
                    await self._redo(on_progress)
                elif self._is_at_end:
                    return
                else:
                    await asyncio.sleep(0)  # a signal has its turn
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            on_progress(self.progress)

    def _to_send(self, requests: Iterable[BatchRequest]) -> Iterator[BatchRequest | None]:
        """Yield the requests that are to be sent, and None after many that were settled here."""
        num_settled = 0
        for request in requests:
            if request.key in self._output.done:
                self.progress.num_before += 1
                self.progress.done_bytes += request.size_bytes
            elif request.fault is not None:
                self._write(request, None)
            else:
                yield request
                continue
            num_settled += 1
            if num_settled % _SETTLED_AT_ONCE == 0:
                yield None
        self._is_at_end = True

    def _fill(self, waiting: Iterator[BatchRequest | None]) -> None:
        while len(self._running) < self._max_concurrency and not self._put_aside:
            request = next(waiting, None)
            if request is None:
                return
            self._running[self._send(request)] = request

    def _send(self, request: BatchRequest) -> asyncio.Task[Answer]:
        return asyncio.create_task(post(self._app, request.url, request.body, request.id))

    def _collect(self) -> None:
        for task in [task for task in self._running if task.done()]:
            request = self._running.pop(task)
            answer = _answer_of(task, request)
            if answer.status in _NOT_ITS_FAULT:
                self._put_aside.append(request)
            else:
                self._write(request, answer)

    async def _redo(self, on_progress: Callable[[Progress], None]) -> None:
        """Do one by one what was put aside; nothing else runs. What comes now is the answer."""
        while self._put_aside:
            await self._until_up()
            request = self._put_aside.pop(0)
            task = self._send(request)
            self._running[task] = request
            await asyncio.wait([task])
            del self._running[task]
            self._write(request, _answer_of(task, request))
            on_progress(self.progress)

    async def _until_up(self) -> None:
        while not self._is_up():  # noqa: ASYNC110 - states of several engines, seldom waited for
            await asyncio.sleep(_POLL_S)

    def _write(self, request: BatchRequest, answer: Answer | None) -> None:
        self._output.write(output_line(request, answer))
        progress = self.progress
        progress.done_bytes += request.size_bytes
        if answer is None or answer.status != _OK:
            progress.num_failed += 1
            return
        progress.num_answered += 1
        num_prompt, num_output = tokens_of(answer)
        progress.num_prompt_tokens += num_prompt
        progress.num_output_tokens += num_output


def _answer_of(task: asyncio.Task[Answer], request: BatchRequest) -> Answer:
    """Return the answer; a fault of the application is one, too."""
    error = task.exception()
    if error is None:
        return task.result()
    _logger.error("a request failed: %s", error, exc_info=error)
    told = api_error_of(error)
    return Answer(told.status, request.id, told.body())
