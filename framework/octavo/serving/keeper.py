"""`EngineKeeper`: one engine process at a time, started, replaced when it dies, ended when idle.

Knows processes and when to start the next. Does not know requests, HTTP or how the engine works.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from octavo.errors import EngineDeadError, OctavoError
from octavo.serving.connection import EngineConnection
from octavo.serving.process import ENGINE_COMMAND, EngineProcess, start_engine_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.engine.messages import EngineInfo
    from octavo.serving import protocol

#: how requests end that were answered
_GOOD_ENDS = frozenset({"stop", "length"})
_logger = logging.getLogger("octavo.serving")


class EngineState(Enum):
    """Where the server stands with an engine."""

    UNLOADED = "unloaded"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a dead engine is replaced before it is given up.

    The pause doubles with each death in a row, up to `max_delay_s`. An engine that ran for
    `healthy_after_s`, or that answered a request to its end, ends the row; after `max_in_row`
    restarts the next death is the last. So that no loop goes on for ever in which an engine
    answers some and dies of others, so is the one after `max_in_window` deaths in `window_s`.

    An engine that `is_on_demand` is given up for that time only: the next request starts it.
    """

    max_in_row: int = 4
    first_delay_s: float = 0.25
    max_delay_s: float = 10.0
    healthy_after_s: float = 60.0
    max_in_window: int = 20
    window_s: float = 600.0
    is_on_demand: bool = False

    def delay_s(self, num_in_row: int) -> float:
        """Return the pause before restart number `num_in_row` (1 is the first)."""
        return float(min(self.max_delay_s, self.first_delay_s * 2 ** (num_in_row - 1)))


class EngineKeeper:
    """Keeps one engine process. One event loop calls all methods.

    `on_batch` gets what the engine says, `on_lost` the error that its requests end with. `failed`
    is done when the engine was given up for good: its exception says why, and the server ends.
    """

    def __init__(
        self,
        config_json: str,
        on_batch: Callable[[protocol.Batch], None],
        on_lost: Callable[[OctavoError], None],
        *,
        command: Sequence[str] = ENGINE_COMMAND,
        restart: RestartPolicy | None = None,
    ) -> None:
        self.state = EngineState.UNLOADED
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connection: EngineConnection | None = None
        self._info: EngineInfo | None = None
        self._config_json = config_json
        self._on_batch = on_batch
        self._tell_lost = on_lost
        self._command = tuple(command)
        self._restart = restart or RestartPolicy()
        self._starting: asyncio.Task[EngineInfo] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._num_in_row = 0
        self._deaths_s: deque[float] = deque()
        self._has_served = False
        self._ready_at_s = 0.0

    @property
    def info(self) -> EngineInfo:
        """Return what the engine said of itself. Raises EngineDeadError before it ever did."""
        if self._info is None:
            raise EngineDeadError("the engine has not started yet")
        return self._info

    @property
    def engine_pid(self) -> int | None:
        """Return the process id of the running engine, or None."""
        connection = self.connection
        return None if connection is None or connection.is_lost else connection.process.pid

    async def start(self, process: EngineProcess | None = None) -> EngineInfo:
        """Start the engine, or take one that is being started, and wait until it is ready.

        Raises the engine's typed error when it cannot start; nothing is left running then, nor
        when the caller is cancelled.
        """
        return await self._begin(process)

    async def ready(self) -> EngineConnection:
        """Return the way to the engine, which is started if it was unloaded.

        All who wait share one start, and may be cancelled alone. Raises EngineDeadError when there
        is no engine now, and its typed error when it cannot start.
        """
        if self.state in {EngineState.UNLOADED, EngineState.STARTING}:
            starting = self._starting or self._begin(None)
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:
                if starting.cancelled():  # not who waits, but what is waited for
                    raise EngineDeadError("the server is shutting down") from None
                raise
        return self.require()

    def require(self) -> EngineConnection:
        """Return the way to the engine. Raises EngineDeadError when there is none now."""
        if self.connection is None or self.state is not EngineState.READY:
            raise EngineDeadError(
                f"the engine is not ready: {self.state.value}", "try again in a few seconds"
            )
        return self.connection

    async def unload(self) -> None:
        """End the engine until it is needed again. Nothing happens unless it is ready."""
        if self.state is not EngineState.READY or self.connection is None:
            return
        self.state = EngineState.UNLOADED
        connection, self.connection = self.connection, None
        self._tell_lost(EngineDeadError("the engine was unloaded", "send the request again"))
        await connection.close()

    async def close(self) -> None:
        """End the engine process for good. Twice is fine."""
        self.state = EngineState.CLOSED
        for task in (self._supervisor, self._starting):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OctavoError):
                    await task
        if self.connection is not None:
            await self.connection.close()

    # ------------------------------------------------------------------ one process after another

    def _begin(self, process: EngineProcess | None) -> asyncio.Task[EngineInfo]:
        if self.state is not EngineState.UNLOADED:
            raise EngineDeadError(f"the engine cannot be started: it is {self.state.value}")
        self.state = EngineState.STARTING
        self._starting = asyncio.get_running_loop().create_task(self._start(process))
        self._starting.add_done_callback(self._forget_start)
        return self._starting

    async def _start(self, process: EngineProcess | None) -> EngineInfo:
        try:
            return await self._connect(process)
        except BaseException:
            if self.state is EngineState.STARTING:
                is_retried = self._restart.is_on_demand
                self.state = EngineState.UNLOADED if is_retried else EngineState.FAILED
            raise

    def _forget_start(self, task: asyncio.Task[EngineInfo]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # whoever waited for it has been told, if there still is anyone

    async def _connect(self, process: EngineProcess | None) -> EngineInfo:
        if process is None:
            process = start_engine_process(self._config_json, self._command)
        self._has_served = False
        self.connection = EngineConnection(process, self._take, self._on_lost)
        self._info = await self.connection.start()
        self.state = EngineState.READY
        self._ready_at_s = asyncio.get_running_loop().time()
        return self._info

    def _take(self, batch: protocol.Batch) -> None:
        """Hand on what the engine says, and note when it has answered somebody to the end."""
        if not self._has_served:
            ends = (output.finish_reason for output in batch.outputs)
            self._has_served = any(end in _GOOD_ENDS for end in ends)
        self._on_batch(batch)

    def _on_lost(self, error: EngineDeadError) -> None:
        if self.state is not EngineState.READY:
            return  # it died while starting, which `_connect` raises, or was told to end
        self.state = EngineState.RESTARTING
        self._tell_lost(error)
        self._supervisor = asyncio.get_running_loop().create_task(self._replace())

    async def _replace(self) -> None:
        """Start engines until one is ready, or until too many have died in a row."""
        now_s = asyncio.get_running_loop().time()
        if self._has_served or now_s - self._ready_at_s >= self._restart.healthy_after_s:
            self._num_in_row = 0
        self._deaths_s.append(now_s)
        while self._deaths_s[0] < now_s - self._restart.window_s:
            self._deaths_s.popleft()
        num_deaths = len(self._deaths_s)
        if num_deaths > self._restart.max_in_window and self.connection is not None:
            within = f"{num_deaths} times within {self._restart.window_s:g} s"
            self._give_up(f"died {within}", self.connection.process.describe_exit())
            return
        while self.state is EngineState.RESTARTING and self.connection is not None:
            process = self.connection.process
            await asyncio.to_thread(process.end, 1.0)
            self._num_in_row += 1
            if self._num_in_row > self._restart.max_in_row:
                self._give_up(f"died {self._num_in_row} times in a row", process.describe_exit())
                return
            delay_s = self._restart.delay_s(self._num_in_row)
            _logger.error(
                "the engine process died: %s; starting it again in %.2g s (%d of %d)",
                process.describe_exit(), delay_s, self._num_in_row, self._restart.max_in_row,
            )  # fmt: skip
            await asyncio.sleep(delay_s)
            try:
                await self._connect(None)
            except OctavoError as error:
                _logger.error("the engine could not start again: %s", error)  # noqa: TRY400
            else:
                _logger.warning("the engine runs again (process %d)", self.engine_pid or 0)
                return

    def _give_up(self, what: str, ended: str) -> None:
        headline, last = f"the engine {what}", f"the engine process died: {ended}"
        if self._restart.is_on_demand:
            _logger.error("%s: %s; the next request for the model starts it again", headline, last)
            self.state, self._num_in_row = EngineState.UNLOADED, 0
            self._deaths_s.clear()
            return
        self.state = EngineState.FAILED
        if not self.failed.done():
            self.failed.set_exception(EngineDeadError(headline, last, "the server ends"))
