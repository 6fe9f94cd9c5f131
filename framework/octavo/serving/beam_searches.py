"""Beam searches of one HTTP call: step after step is run, and what was found comes as one stream.

The stream is that of the call's own sequences, as if the engine had run those: whoever reads it
need not know that it comes of a search.

Knows searches, the engine's client and tasks. Does not know HTTP, text or scores.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from octavo.errors import QueueFullError
from octavo.frontend.beam_search import BeamSearch
from octavo.serving.streams import OutputStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.messages import EngineRequest
    from octavo.frontend.preprocess import PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.serving.client import EngineClient

#: how long a step that finds the engine's queue full waits before it is tried again
_RETRY_S: Final = 0.02


async def start_searches(
    client: EngineClient, calls: Sequence[PreparedCall], tokenizer: Tokenizer
) -> OutputStream:
    """Return the stream of what is found, once the engine has accepted the first step.

    Raises as `EngineClient.generate` does; nothing runs then. A later step that finds the queue
    full is tried again until it is taken: a search that has begun is not refused half way.
    """
    searches = _Searches(client, [BeamSearch(call, tokenizer) for call in calls])
    await searches.start()
    return searches.stream


class _Searches:
    """The searches of one call. A step holds the beams of all of them."""

    def __init__(self, client: EngineClient, searches: Sequence[BeamSearch]) -> None:
        self._client = client
        self._running = list(searches)
        self._ids = [one.request_id for search in searches for one in search.call.requests]
        self.stream = OutputStream(self._ids, self._cancel, sys.maxsize)
        self._step: OutputStream | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Hand the engine the first step, and go on in a task."""
        self._step = await self._client.generate(self._requests())
        self._client.follow(self._ids, self.stream)
        self._task = asyncio.create_task(self._run(self._step))

    def _requests(self) -> list[EngineRequest]:
        """Return the next step; nothing when the sequences were ended while no step ran."""
        if not self.stream.running_ids:
            return []
        return [request for search in self._running for request in search.next_requests()]

    async def _run(self, first: OutputStream) -> None:
        """Run all steps. The stream gets what comes of it, also an error."""
        try:
            await self._finish(first)
            while requests := self._requests():
                await self._run_step(requests)
        except Exception as error:  # noqa: BLE001 - the stream's reader raises it
            if self.stream.running_ids:
                self.stream.fail(error)
        finally:
            self._client.abort(self._ids)

    async def _run_step(self, requests: list[EngineRequest]) -> None:
        try:
            self._step = await self._client.generate(requests, goes_on=True)
        except QueueFullError:
            for search in self._running:
                search.refused()
            await asyncio.sleep(_RETRY_S)
        else:
            await self._finish(self._step)

    async def _finish(self, step: OutputStream) -> None:
        """Read a step to its end, and tell of the searches that are over with it."""
        searches = {i: search for search in self._running for i in search.unfinished_ids()}
        async for output in step:
            for request_id in searches[output.request_id].absorb(output):
                step.end_sequence(request_id)
        for search in self._running:
            if search.is_finished:
                for result in search.results():
                    self.stream.feed(result)
        self._running = [search for search in self._running if not search.is_finished]

    def _cancel(self, request_ids: list[str]) -> None:
        """End all at once: nobody reads the stream any more."""
        del request_ids
        if self._task is not None:
            self._task.cancel()
        if self._step is not None:
            self._step.close()
        self._client.abort(self._ids)
