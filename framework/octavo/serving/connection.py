"""One engine process's life on the event loop: its answer to `Start`, its messages, its end.

Knows frames, pings and how the end of a process shows. Does not know requests or restarts.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, cast

from octavo.errors import EngineDeadError
from octavo.serving import protocol
from octavo.serving.controls import Control, Controlled
from octavo.serving.framing import FrameBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.engine.messages import EngineInfo, EngineStats
    from octavo.errors import OctavoError
    from octavo.interfaces.adapter import AdapterSpec
    from octavo.serving.controls import Action
    from octavo.serving.process import EngineProcess

#: a step is healthy until it has run this many times its predicted time ...
_STEP_PATIENCE = 3.0
#: ... or this long, whichever is more: a loaded machine stretches short steps by far more, and so
#: does a long context, which predictions leave out
_MIN_STEP_PATIENCE_MS = 5000.0
_EXIT_WAIT_S = 5.0


class EngineConnection(asyncio.Protocol):
    """A running engine process. All methods belong to the event loop's thread.

    `on_batch` gets the outputs and acknowledgements; `on_lost` is called once, when the process
    or its loop has ended, with the error that running requests end with.
    """

    def __init__(
        self,
        process: EngineProcess,
        on_batch: Callable[[protocol.Batch], None],
        on_lost: Callable[[EngineDeadError], None],
    ) -> None:
        self.process = process
        self.is_lost = False
        self._on_batch = on_batch
        self._on_lost = on_lost
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self._numbers = itertools.count()
        self._pings: dict[int, asyncio.Future[str | None]] = {}
        self._stats: list[asyncio.Future[EngineStats]] = []
        self._preparations: dict[int, asyncio.Future[None]] = {}
        self._controls: dict[int, asyncio.Future[bool]] = {}
        self._death: OctavoError | None = None

    async def start(self) -> EngineInfo:
        """Wait until the engine has loaded. Raises its typed error when it could not."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=self.process.sock)
        try:
            return await self._ready
        except EngineDeadError as error:
            await self.close()
            ended = self.process.describe_exit()
            raise EngineDeadError(f"the engine process ended while it started: {ended}") from error
        except BaseException:
            await self.close()
            raise

    def send(self, message: protocol.ToEngine) -> None:
        """Send a message. Raises EngineDeadError when the process has ended."""
        self.send_frame(protocol.encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        """Send a message that is framed already. Raises EngineDeadError."""
        if self._transport is None or self.is_lost:
            raise EngineDeadError("the engine process is not running")
        self._transport.write(frame)

    async def ping(self, timeout_s: float) -> None:
        """Return when the engine makes progress. Raises EngineDeadError when it does not."""
        ping_id = next(self._numbers)
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._pings[ping_id] = future
        try:
            self.send(protocol.Ping(ping_id))
            problem = await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            problem = f"the engine's loop did not answer for {timeout_s:g} s"
        finally:
            self._pings.pop(ping_id, None)
        if problem is not None:
            raise EngineDeadError(problem)

    async def stats(self) -> EngineStats:
        """Return a snapshot, taken by the engine's loop between two steps."""
        future: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._stats.append(future)
        self.send(protocol.GetStats())
        return await future

    async def prepare(self, adapter: AdapterSpec) -> None:
        """Return when an adapter is ready. Raises AdapterError, and EngineDeadError."""
        number = next(self._numbers)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._preparations[number] = future
        try:
            self.send(protocol.Prepare(number, adapter))
            await future
        finally:
            del self._preparations[number]

    async def control(self, action: Action) -> bool:
        """Return whether the engine could do it. Raises EngineDeadError."""
        number = next(self._numbers)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._controls[number] = future
        try:
            self.send(Control(number, action))
            return await future
        finally:
            del self._controls[number]

    async def close(self, wait_s: float = _EXIT_WAIT_S) -> int:
        """End the process, by force after `wait_s`. Returns its exit code."""
        if self._transport is not None:
            self._transport.close()
        else:
            self.process.sock.close()
        return await asyncio.to_thread(self.process.end, wait_s)

    # ------------------------------------------------------------------ called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; those of uvloop do not inherit from asyncio's."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand on each message that is complete."""
        for body in self._frames.feed(data):
            self._handle(protocol.decode_from_engine(body))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits that the process has ended."""
        del exc
        self.is_lost = True
        self.process.sock.close()
        facts = () if self._death is None else (self._death.headline, *self._death.facts)
        error = EngineDeadError(
            "the engine process ended while it ran this request",
            *facts,
            "the engine is started again; send the request again in a few seconds",
        )
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._stats, *self._pings.values()]
        for future in (*waiting, *self._preparations.values(), *self._controls.values()):
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting, and that is no error of its own
        self._on_lost(error)

    def _handle(self, message: protocol.FromEngine) -> None:
        match message:
            case protocol.Batch():
                self._on_batch(message)
            case protocol.Pong():
                self._handle_pong(message)
            case protocol.Stats():
                waiting, self._stats = self._stats, []
                for future in waiting:
                    if not future.done():
                        future.set_result(message.stats)
            case protocol.Prepared():
                self._handle_prepared(message)
            case Controlled():
                control = self._controls.get(message.number)
                if control is not None and not control.done():
                    control.set_result(message.is_done)
            case protocol.Ready():
                self._ready.set_result(message.info)
            case protocol.StartFailed():
                self._ready.set_exception(protocol.error_from_wire(message.error))
            case protocol.Died():
                self._death = protocol.error_from_wire(message.error)

    def _handle_prepared(self, message: protocol.Prepared) -> None:
        future = self._preparations.get(message.number)
        if future is None or future.done():
            return
        if message.error is None:
            future.set_result(None)
        else:
            future.set_exception(protocol.error_from_wire(message.error))

    def _handle_pong(self, pong: protocol.Pong) -> None:
        """Settle a ping: the loop's answer is good news; the reader's may be good or bad."""
        future = self._pings.get(pong.ping_id)
        if future is None or future.done():
            return
        if pong.is_loop:
            future.set_result(None)
        elif pong.step_ms is not None:
            patience_ms = max(_STEP_PATIENCE * pong.predicted_ms, _MIN_STEP_PATIENCE_MS)
            is_late = pong.step_ms > patience_ms
            problem = (
                f"the engine's step has run for {pong.step_ms:.0f} ms; "
                f"{pong.predicted_ms:.0f} ms were predicted"
            )
            future.set_result(problem if is_late else None)
