"""The way of a call's outputs from the engine's thread to the event loop of whoever waits.

Knows asyncio. Does not know engines, or what the outputs are made into.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from octavo.engine.messages import EngineOutput
    from octavo.frontend.offline import Follower


class LoopStream:
    """One call on its way to whoever iterates over it."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.engine_ids: list[str] = []
        self.loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._error: Exception | None = None

    def feed(self, outputs: Sequence[EngineOutput], now_s: float) -> list[str]:
        """Take news of the engine. Returns the engine requests to abort."""
        aborted = []
        for output in outputs:
            aborted += self.follower.absorb(output, now_s)
            if output.finish_reason == "error":
                self._error = output.failure()
        self._wake.set()
        return aborted

    def fail(self, error: Exception) -> None:
        """End the iteration with an error, unless all has come already."""
        if not self.follower.is_finished:
            self._error = error
        self._wake.set()

    def wake(self) -> None:
        """Have the reader look at what its call has come to."""
        self._wake.set()

    async def turns(self) -> AsyncGenerator[None, None]:
        """Yield when something has come, until all has. Raises what `fail` was given."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._error is not None:
                raise self._error
            yield
            if self.follower.is_finished:
                return


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Any, argument: Any) -> None:
    """Schedule a call in a loop; a loop that is closed has nobody left who waits."""
    try:
        loop.call_soon_threadsafe(function, argument)
    except RuntimeError:
        if not loop.is_closed():
            raise
