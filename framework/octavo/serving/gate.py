"""Whether new requests may go to an engine now: they may, or they wait, or they are refused.

Knows two switches. Does not know engines or requests.
"""

from __future__ import annotations

import asyncio

from octavo.errors import EngineError


class SleepingError(EngineError):
    """A model was put to sleep, and requests for it are refused until it is woken up."""

    http_status = 503


class Gate:
    """What stands before one engine. One event loop calls all methods."""

    def __init__(self) -> None:
        self.sleep_level: int | None = None
        self.had_engine = False
        self._is_open = asyncio.Event()
        self._is_open.set()

    @property
    def is_paused(self) -> bool:
        """Return whether new requests wait."""
        return not self._is_open.is_set()

    def pause(self) -> None:
        """Have new requests wait."""
        self._is_open.clear()

    def resume(self) -> None:
        """Let requests through, those that wait first."""
        self._is_open.set()

    def sleep(self, level: int, *, had_engine: bool) -> None:
        """Refuse new requests, and those that wait. `had_engine`: one is to run again later."""
        self.sleep_level, self.had_engine = level, had_engine
        self._is_open.set()

    def wake(self) -> None:
        """Refuse nothing any more."""
        self.sleep_level = None

    async def passed(self) -> None:
        """Return when a request may go on. Raises SleepingError."""
        await self._is_open.wait()
        self.check_awake()

    def check_awake(self) -> None:
        """Raise SleepingError where requests are refused. What has begun may go on at a pause."""
        if self.sleep_level is not None:
            raise SleepingError("the model sleeps", "an operator wakes it up: POST /wake_up")
