"""`EngineClient`: requests go in, streams of outputs come out, whichever engine process runs.

Knows the calls that run in an engine. Does not know HTTP, text, how the engine works, or when its
process is started (`keeper`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.engine.messages import EngineOutput
from octavo.errors import EngineDeadError, OctavoError, QueueFullError, RequestError
from octavo.serving import protocol
from octavo.serving.gate import Gate
from octavo.serving.keeper import EngineKeeper, EngineState, RestartPolicy
from octavo.serving.process import ENGINE_COMMAND
from octavo.serving.streams import DEFAULT_MAX_BACKLOG_TOKENS, OutputStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.messages import EngineInfo, EngineRequest, EngineStats
    from octavo.interfaces.adapter import AdapterSpec
    from octavo.serving.controls import Action
    from octavo.serving.process import EngineProcess

__all__ = ["EngineClient", "EngineState", "RestartPolicy"]

_PING_TIMEOUT_S = 2.0


@dataclass(slots=True)
class _Call:
    """The requests of one `generate`, until each is answered and then ended."""

    stream: OutputStream
    unanswered: set[str]
    rejection: OctavoError | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class EngineClient:
    """Runs requests in one engine, which is started for them if it was unloaded.

    One event loop calls all methods. `failed` is done when the engine was given up: its exception
    says why, and the server ends.
    """

    def __init__(
        self,
        config_json: str,
        *,
        command: Sequence[str] = ENGINE_COMMAND,
        restart: RestartPolicy | None = None,
        max_backlog_tokens: int = DEFAULT_MAX_BACKLOG_TOKENS,
    ) -> None:
        self.gate = Gate()
        self.last_used_s = asyncio.get_running_loop().time()
        self._keeper = EngineKeeper(
            config_json, self._on_batch, self._fail_calls, command=command, restart=restart
        )
        self._max_backlog_tokens = max_backlog_tokens
        self._calls: dict[str, _Call] = {}
        self._num_at_gate = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def start(self, process: EngineProcess | None = None) -> EngineInfo:
        """Start the engine, or take one that is being started, and wait until it is ready.

        Raises the engine's typed error when it cannot start; nothing is left running then.
        """
        return await self._keeper.start(process)

    @property
    def state(self) -> EngineState:
        """Return where the engine stands."""
        return self._keeper.state

    @property
    def failed(self) -> asyncio.Future[None]:
        """Return what is done when the engine was given up."""
        return self._keeper.failed

    @property
    def info(self) -> EngineInfo:
        """Return what the engine said of itself. Raises EngineDeadError before it ever did."""
        return self._keeper.info

    @property
    def engine_pid(self) -> int | None:
        """Return the process id of the running engine, or None."""
        return self._keeper.engine_pid

    @property
    def num_calls(self) -> int:
        """Return how many sequences run or wait, as this side of the socket knows it."""
        return len(self._calls) + self._num_at_gate

    @property
    def request_ids(self) -> list[str]:
        """Return the ids of the sequences that run or wait."""
        return list(self._calls)

    async def generate(
        self, requests: Sequence[EngineRequest], *, goes_on: bool = False
    ) -> OutputStream:
        """Hand requests to the engine as one call, and return their stream once all are accepted.

        `goes_on` tells what belongs to something that has begun: it does not wait at a pause.
        Raises RequestError or QueueFullError when the engine refuses one (none runs then),
        EngineDeadError when there is no engine, and SleepingError when there is to be none.
        """
        frame = _frame_of(requests)
        if goes_on:
            self.gate.check_awake()
        else:
            await self._pass_gate(len(requests))
        ids = [request.request_id for request in requests]
        taken = next((i for i in ids if i in self._calls), None)
        if taken is not None or len(set(ids)) < len(ids):
            raise RequestError(f"request id {taken or ids[0]!r} is in use", param="request_id")
        call = _Call(OutputStream(ids, self.abort, self._max_backlog_tokens), set(ids))
        self._calls.update(dict.fromkeys(ids, call))
        self._is_idle.clear()
        try:
            (await self._keeper.ready()).send_frame(frame)
            await call.answered.wait()
        except BaseException:
            call.stream.close()
            raise
        if call.rejection is not None:
            call.stream.close()
            raise call.rejection
        return call.stream

    def follow(self, request_ids: Sequence[str], stream: OutputStream) -> None:
        """Count sequences as running that others are run for, until `abort` is told of them.

        They can be ended as others can, and a dead engine fails their stream.
        """
        self._calls.update(dict.fromkeys(request_ids, _Call(stream, set())))
        self._is_idle.clear()

    async def _pass_gate(self, num_sequences: int) -> None:
        """Wait while the engine is paused, with no more than may wait in the engine itself."""
        if not self.gate.is_paused:
            await self.gate.passed()
            return
        limit = self.info.max_num_queued_reqs
        if self._num_at_gate + num_sequences > limit:
            raise QueueFullError(
                f"{self._num_at_gate} requests wait for the model, which is paused: as many as may",
                "try again later, or raise max-num-queued-reqs",
            )
        self._num_at_gate += num_sequences
        try:
            await self.gate.passed()
        finally:
            self._num_at_gate -= num_sequences

    def abort(self, request_ids: list[str]) -> None:
        """Forget requests, here and in the engine; unknown ids are ignored."""
        known = [i for i in request_ids if self._calls.pop(i, None) is not None]
        self._touch()
        if known:
            self._tell(protocol.Abort(known))

    def end(self, request_ids: Sequence[str]) -> None:
        """End requests here and in the engine: their streams end with `abort` as the reason."""
        for request_id in [one for one in request_ids if one in self._calls]:
            call = self._calls[request_id]
            call.stream.feed(EngineOutput(request_id, [], finish_reason="abort"))
            self._answer(request_id, None)
        self.abort(list(request_ids))

    async def stats(self) -> EngineStats:
        """Return the engine's counters. Raises EngineDeadError when there is no engine."""
        return await self._keeper.require().stats()

    async def prepare(self, adapter: AdapterSpec) -> None:
        """Return when an adapter is ready. Raises AdapterError, or EngineDeadError."""
        self._touch()
        await self.gate.passed()
        await (await self._keeper.ready()).prepare(adapter)

    def discard(self, adapter: AdapterSpec) -> None:
        """Have an adapter forgotten as soon as no request needs it; a dead engine has done so."""
        self._tell(protocol.Discard(adapter))

    async def drained(self) -> None:
        """Return when no sequence runs or waits."""
        await self._is_idle.wait()

    async def control(self, action: Action) -> bool:
        """Return whether the engine could do it. Raises EngineDeadError when there is none."""
        return await self._keeper.require().control(action)

    async def reload(self) -> None:
        """Start the engine again after `unload`. Raises EngineDeadError, and its typed error."""
        await self._keeper.ready()

    async def unload(self) -> None:
        """End the engine until it is needed again."""
        await self._keeper.unload()

    async def ping(self, timeout_s: float = _PING_TIMEOUT_S) -> None:
        """Return when the engine makes progress, or waits unloaded to be asked for.

        Raises EngineDeadError when it does neither.
        """
        if self.state is not EngineState.UNLOADED:
            await self._keeper.require().ping(timeout_s)

    async def unload_if_idle(self, idle_s: float) -> float:
        """End the engine if nobody has used it for so long, until the next request comes.

        Returns after how many seconds it is worth asking again.
        """
        left_s = self.last_used_s + idle_s - asyncio.get_running_loop().time()
        if self._calls or self.state is not EngineState.READY:
            return idle_s
        if left_s <= 0:
            await self._keeper.unload()
        return left_s if left_s > 0 else idle_s

    async def close(self) -> None:
        """Abort everything and end the engine process. Twice is fine."""
        self._fail_calls(EngineDeadError("the server is shutting down"))
        await self._keeper.close()

    def _tell(self, message: protocol.ToEngine) -> None:
        """Send a message to the engine, if there is one to be told."""
        connection = self._keeper.connection
        if connection is not None and not connection.is_lost:
            connection.send(message)

    def _touch(self) -> None:
        self.last_used_s = asyncio.get_running_loop().time()
        if not self._calls:
            self._is_idle.set()

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
            self._touch()
        call.stream.feed(output)

    def _fail_calls(self, error: OctavoError) -> None:
        calls, self._calls = self._calls, {}
        self._touch()
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
