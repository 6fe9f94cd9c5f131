"""`EngineClient`: requests go in, streams of outputs come out, and a dead engine is replaced.

Knows one engine process at a time, the calls that run in it, and when to start the next. Does not
know HTTP, text or how the engine works.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from octavo.errors import EngineDeadError, OctavoError, RequestError
from octavo.serving import protocol
from octavo.serving.connection import EngineConnection
from octavo.serving.process import ENGINE_COMMAND, EngineProcess, start_engine_process
from octavo.serving.streams import DEFAULT_MAX_BACKLOG_TOKENS, OutputStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.messages import EngineInfo, EngineOutput, EngineRequest, EngineStats
    from octavo.interfaces.adapter import AdapterSpec

_logger = logging.getLogger("octavo.serving")

_PING_TIMEOUT_S = 2.0


class EngineState(Enum):
    """Where the client stands with its engine."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a dead engine is replaced before the server gives up.

    The pause doubles with each death in a row, up to `max_delay_s`. An engine that ran for
    `healthy_after_s` ends the row; after `max_in_row` restarts the next death is the last.
    """

    max_in_row: int = 4
    first_delay_s: float = 0.25
    max_delay_s: float = 10.0
    healthy_after_s: float = 60.0

    def delay_s(self, num_in_row: int) -> float:
        """Return the pause before restart number `num_in_row` (1 is the first)."""
        return float(min(self.max_delay_s, self.first_delay_s * 2 ** (num_in_row - 1)))


@dataclass(slots=True)
class _Call:
    """The requests of one `generate`, until each is answered and then ended."""

    stream: OutputStream
    unanswered: set[str]
    rejection: OctavoError | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class EngineClient:
    """Runs one engine process and keeps it running. One event loop calls all methods.

    `failed` is done when the engine was given up: its exception says why, and the server ends.
    """

    def __init__(
        self,
        config_json: str,
        *,
        command: Sequence[str] = ENGINE_COMMAND,
        restart: RestartPolicy | None = None,
        max_backlog_tokens: int = DEFAULT_MAX_BACKLOG_TOKENS,
    ) -> None:
        self.state = EngineState.STARTING
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._config_json = config_json
        self._command = tuple(command)
        self._restart = restart or RestartPolicy()
        self._max_backlog_tokens = max_backlog_tokens
        self._calls: dict[str, _Call] = {}
        self._connection: EngineConnection | None = None
        self._info: EngineInfo | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._num_in_row = 0
        self._ready_at_s = 0.0

    async def start(self, process: EngineProcess | None = None) -> EngineInfo:
        """Start the engine, or take one that is being started, and wait until it is ready.

        Raises the engine's typed error when it cannot start; nothing is left running then.
        """
        try:
            return await self._connect(process)
        except BaseException:
            self.state = EngineState.FAILED
            raise

    @property
    def info(self) -> EngineInfo:
        """Return what the engine said of itself. Raises EngineDeadError before it ever did."""
        if self._info is None:
            raise EngineDeadError("the engine has not started yet")
        return self._info

    @property
    def engine_pid(self) -> int | None:
        """Return the process id of the running engine, or None."""
        connection = self._connection
        return None if connection is None or connection.is_lost else connection.process.pid

    @property
    def num_calls(self) -> int:
        """Return how many sequences run or wait, as this side of the socket knows it."""
        return len(self._calls)

    async def generate(self, requests: Sequence[EngineRequest]) -> OutputStream:
        """Hand requests to the engine as one call, and return their stream once all are accepted.

        Raises RequestError or QueueFullError when the engine refuses one (none runs then), and
        EngineDeadError when there is no engine.
        """
        frame = _frame_of(requests)
        ids = [request.request_id for request in requests]
        taken = next((i for i in ids if i in self._calls), None)
        if taken is not None or len(set(ids)) < len(ids):
            raise RequestError(f"request id {taken or ids[0]!r} is in use", param="request_id")
        connection = self._require_ready()
        call = _Call(OutputStream(ids, self.abort, self._max_backlog_tokens), set(ids))
        connection.send_frame(frame)
        self._calls.update(dict.fromkeys(ids, call))
        try:
            await call.answered.wait()
        except BaseException:
            call.stream.close()
            raise
        if call.rejection is not None:
            call.stream.close()
            raise call.rejection
        return call.stream

    def abort(self, request_ids: list[str]) -> None:
        """Forget requests, here and in the engine; unknown ids are ignored."""
        known = [i for i in request_ids if self._calls.pop(i, None) is not None]
        if known and self._connection is not None and not self._connection.is_lost:
            self._connection.send(protocol.Abort(known))

    async def stats(self) -> EngineStats:
        """Return the engine's counters. Raises EngineDeadError when there is no engine."""
        return await self._require_ready().stats()

    async def prepare(self, adapter: AdapterSpec) -> None:
        """Return when an adapter is ready. Raises AdapterError, or EngineDeadError."""
        await self._require_ready().prepare(adapter)

    def discard(self, adapter: AdapterSpec) -> None:
        """Have an adapter forgotten as soon as no request needs it; a dead engine has done so."""
        if self._connection is not None and not self._connection.is_lost:
            self._connection.send(protocol.Discard(adapter))

    async def ping(self, timeout_s: float = _PING_TIMEOUT_S) -> None:
        """Return when the engine makes progress. Raises EngineDeadError when it does not."""
        await self._require_ready().ping(timeout_s)

    async def close(self) -> None:
        """Abort everything and end the engine process. Twice is fine."""
        self.state = EngineState.CLOSED
        self._fail_calls(EngineDeadError("the server is shutting down"))
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        if self._connection is not None:
            await self._connection.close()

    # ------------------------------------------------------------------ one process after another

    async def _connect(self, process: EngineProcess | None) -> EngineInfo:
        if process is None:
            process = start_engine_process(self._config_json, self._command)
        self._connection = EngineConnection(process, self._on_batch, self._on_lost)
        self._info = await self._connection.start()
        self.state = EngineState.READY
        self._ready_at_s = asyncio.get_running_loop().time()
        return self._info

    def _require_ready(self) -> EngineConnection:
        if self._connection is None or self.state is not EngineState.READY:
            raise EngineDeadError(
                f"the engine is not ready: {self.state.value}", "try again in a few seconds"
            )
        return self._connection

    def _on_lost(self, error: EngineDeadError) -> None:
        if self.state is not EngineState.READY:
            return  # it died while starting, which `_connect` raises, or was told to end
        self.state = EngineState.RESTARTING
        self._fail_calls(error)
        self._supervisor = asyncio.get_running_loop().create_task(self._replace())

    async def _replace(self) -> None:
        """Start engines until one is ready, or until too many have died in a row."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._ready_at_s >= self._restart.healthy_after_s:
            self._num_in_row = 0
        while self.state is EngineState.RESTARTING and self._connection is not None:
            process = self._connection.process
            await asyncio.to_thread(process.end, 1.0)
            self._num_in_row += 1
            if self._num_in_row > self._restart.max_in_row:
                self._give_up(f"the engine process died: {process.describe_exit()}")
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

    def _give_up(self, last: str) -> None:
        self.state = EngineState.FAILED
        error = EngineDeadError(
            f"the engine died {self._num_in_row} times in a row", last, "the server ends"
        )
        if not self.failed.done():
            self.failed.set_exception(error)

    # ------------------------------------------------------------------ what comes back

    def _on_batch(self, batch: protocol.Batch) -> None:
        for request_id in batch.accepted:
            self._answer(request_id, None)
        for request_id, wire in batch.rejected:
            self._answer(request_id, protocol.error_from_wire(wire))
        for output in batch.outputs:
            self._deliver(output)

    def _answer(self, request_id: str, rejection: OctavoError | None) -> None:
        call = self._calls.get(request_id)
        if call is None:
            return
        call.rejection = call.rejection or rejection
        call.unanswered.discard(request_id)
        if not call.unanswered:
            call.answered.set()

    def _deliver(self, output: EngineOutput) -> None:
        call = self._calls.get(output.request_id)
        if call is None:
            return
        if output.finish_reason is not None:
            del self._calls[output.request_id]
        call.stream.feed(output)

    def _fail_calls(self, error: OctavoError) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.stream.fail(error)
            call.rejection = call.rejection or error
            call.answered.set()


def _frame_of(requests: Sequence[EngineRequest]) -> bytes:
    """Return the message that adds requests. Raises RequestError for what cannot be sent."""
    try:
        return protocol.encode_frame(protocol.add_of(requests))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RequestError(
            "a value of this request cannot be sent to the engine", str(error)
        ) from error
