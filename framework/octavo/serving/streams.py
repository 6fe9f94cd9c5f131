"""The outputs of one call on their way from the engine to its reader, in a bounded buffer.

Knows engine outputs and how many tokens may wait. Does not know sockets, text or HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from octavo.errors import RequestFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.engine.messages import EngineOutput

_logger = logging.getLogger("octavo.serving")

DEFAULT_MAX_BACKLOG_TOKENS = 8192


class OutputStream:
    """An async iterator over the outputs of the sequences of one call, as they come.

    Outputs of one sequence that wait are merged into one, so a reader that is behind catches up
    in few steps. When more than `max_backlog_tokens` wait, the reader is too slow: the call is
    aborted, and the reader gets `RequestFailedError` once it reads again. `close` (or leaving the
    stream unread) aborts what still runs; call it on every way out.
    """

    def __init__(
        self,
        request_ids: Sequence[str],
        abort: Callable[[list[str]], None],
        max_backlog_tokens: int = DEFAULT_MAX_BACKLOG_TOKENS,
    ) -> None:
        self.running_ids = set(request_ids)
        self._abort = abort
        self._max_backlog_tokens = max_backlog_tokens
        self._pending: dict[str, EngineOutput] = {}
        self._num_pending_tokens = 0
        self._error: Exception | None = None
        self._wake = asyncio.Event()

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> EngineOutput:
        """Return the next output. Raises what `fail` was given, after the outputs before it."""
        while not self._pending:
            if self._error is not None:
                raise self._error
            if not self.running_ids:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        output = self._pending.pop(next(iter(self._pending)))
        self._num_pending_tokens -= len(output.token_ids)
        return output

    def feed(self, output: EngineOutput) -> None:
        """Add news of one of the sequences."""
        if output.request_id not in self.running_ids or self._error is not None:
            return
        waiting = self._pending.get(output.request_id)
        self._pending[output.request_id] = output if waiting is None else merge(waiting, output)
        self._num_pending_tokens += len(output.token_ids)
        if output.finish_reason is not None:
            self.running_ids.discard(output.request_id)
        self._wake.set()
        if self._num_pending_tokens > self._max_backlog_tokens:
            self._drop_slow_reader()

    def fail(self, error: Exception) -> None:
        """End the stream with an error."""
        if self._error is None:
            self._error = error
        self.running_ids.clear()
        self._wake.set()

    def end_sequence(self, request_id: str) -> None:
        """End one sequence here: its reader wants no more (a stop string was found)."""
        if request_id in self.running_ids:
            self.running_ids.discard(request_id)
            self._abort([request_id])
        waiting = self._pending.pop(request_id, None)
        if waiting is not None:
            self._num_pending_tokens -= len(waiting.token_ids)

    def close(self) -> None:
        """Abort what still runs. Twice is fine."""
        if self.running_ids:
            request_ids = list(self.running_ids)
            self.running_ids.clear()
            self._abort(request_ids)
        self._wake.set()

    def _drop_slow_reader(self) -> None:
        request_ids = list(self.running_ids)
        self._pending.clear()
        self._num_pending_tokens = 0
        error = RequestFailedError(
            "the client reads too slowly and the request was aborted",
            f"more than {self._max_backlog_tokens} tokens were waiting for it",
        )
        _logger.warning("%s: %s", ", ".join(request_ids), error.headline)
        self.fail(error)
        self._abort(request_ids)


def merge(first: EngineOutput, second: EngineOutput) -> EngineOutput:
    """Return `first` extended by the later `second` of the same sequence."""
    first.token_ids.extend(second.token_ids)
    if second.logprobs:
        first.logprobs = [*(first.logprobs or ()), *second.logprobs]
    if second.prompt_logprobs is not None:
        first.prompt_logprobs = second.prompt_logprobs
    first.num_cached_tokens = max(first.num_cached_tokens, second.num_cached_tokens)
    first.finish_reason = second.finish_reason
    first.stop_reason = second.stop_reason
    first.error = second.error
    return first
