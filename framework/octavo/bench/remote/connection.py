"""Sends requests over kept connections, and notes when each piece of an answer comes.

It reads sockets with asyncio, and decodes no more than it must, so that the client's own work
stays small beside the server's. Knows HTTP and server-sent events of OpenAI's API. Does not know
workloads.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import msgspec

from octavo.bench.remote.http_body import AnswerParser, MalformedAnswerError
from octavo.bench.remote.outcome import Outcome

if TYPE_CHECKING:
    from octavo.bench.remote.address import Address

_OK = 200
_EVENT_END = b"\n\n"
_DATA = b"data:"
_DONE = b"[DONE]"
_MAX_DETAIL_CHARS = 300


class _Choice(msgspec.Struct):
    delta: dict[str, Any] | None = None
    text: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_read_event = msgspec.json.Decoder(_Event).decode


class Exchange:
    """One answer as it comes. `done` is set at its end, whatever that is."""

    def __init__(self) -> None:
        self.outcome = Outcome(sent_s=time.perf_counter())
        self.parser = AnswerParser()
        self.body = bytearray()
        self.done = asyncio.Event()
        self.has_answer = False
        self._events = b""
        self._is_stream = False
        self._has_ended = False

    def feed(self, data: bytes) -> None:
        """Take bytes that came."""
        now_s = time.perf_counter()
        self.has_answer = True
        try:
            piece = self.parser.feed(data)
        except MalformedAnswerError as error:
            self.fail("malformed answer", str(error))
            return
        if piece:
            self._take(piece, now_s)
        if self.parser.is_complete:
            self.end(now_s)

    def lose(self) -> None:
        """Note that the connection has ended."""
        self.parser.end()
        if self.parser.is_complete:
            self.end(time.perf_counter())
        else:
            self.fail("connection lost", "it was closed before the answer ended")

    def fail(self, error: str, detail: str = "") -> None:
        """End with an error; the first one counts."""
        self.parser.may_stay_open = False
        outcome = self.outcome
        outcome.end_s = time.perf_counter()
        if outcome.error is None:
            outcome.error, outcome.detail = error, detail[:_MAX_DETAIL_CHARS]
        self.done.set()

    def end(self, now_s: float) -> None:
        """Judge a whole answer."""
        outcome = self.outcome
        outcome.end_s = now_s
        if self.parser.status != _OK:
            outcome.error = f"HTTP {self.parser.status}"
            outcome.detail = _message(bytes(self.body))
        elif self._is_stream and outcome.error is None:
            if not self._has_ended:
                outcome.error, outcome.detail = "stream cut off", "it ended without [DONE]"
            elif not outcome.chunk_times_s:
                outcome.error, outcome.detail = "no text", "the answer holds no text"
        self.done.set()

    def _take(self, piece: bytes, now_s: float) -> None:
        if not self._is_stream:
            kind = self.parser.headers.get("content-type", "")
            self._is_stream = self.parser.status == _OK and kind.startswith("text/event-stream")
        if not self._is_stream:
            self.body += piece
            return
        *events, self._events = (self._events + piece.replace(b"\r\n", b"\n")).split(_EVENT_END)
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(_DATA):
                    self._take_data(line[len(_DATA) :].strip(), now_s)

    def _take_data(self, data: bytes, now_s: float) -> None:
        if data == _DONE:
            self._has_ended = True
            return
        try:
            event = _read_event(data)
        except msgspec.MsgspecError as error:
            self.outcome.error, self.outcome.detail = "malformed event", str(error)
            return
        if event.error is not None:
            self.outcome.error = "error in the stream"
            self.outcome.detail = _message(data)
        if any(choice.text or _has_text(choice.delta) for choice in event.choices):
            self.outcome.chunk_times_s.append(now_s)
        if event.usage is not None:
            self.outcome.num_prompt_tokens = event.usage.prompt_tokens
            self.outcome.num_usage_tokens = event.usage.completion_tokens


def _has_text(delta: dict[str, Any] | None) -> bool:
    """Return whether there is anything but a role; servers name what they add in several ways."""
    return bool(delta) and any(value for name, value in (delta or {}).items() if name != "role")


def _message(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body).get("error")
    except (msgspec.MsgspecError, AttributeError):
        error = None
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or body.decode("utf-8", "replace"))[:_MAX_DETAIL_CHARS]


class _Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.is_lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.exchange is not None:
            self.exchange.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_lost = True
        if self.exchange is not None and not self.exchange.done.is_set():
            self.exchange.lose()


class Connections:
    """All connections to a server; one that is free is used again, the latest first."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._free: list[_Connection] = []

    async def send(self, method: str, path: str, body: bytes = b"") -> Exchange:
        """Return the exchange of a request when it has ended; its outcome says how."""
        data = self._address.request(method, path, body)
        exchange = await self._send_once(data)
        if exchange.outcome.error == "connection lost" and not exchange.has_answer:
            exchange = await self._send_once(data)  # the server had closed an idle connection
        return exchange

    def close(self) -> None:
        """Close what is open."""
        for connection in self._free:
            if connection.transport is not None:
                connection.transport.close()
        self._free.clear()

    async def _send_once(self, data: bytes) -> Exchange:
        exchange = Exchange()
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connection()
                connection.exchange = exchange
                assert connection.transport is not None  # noqa: S101 - it is connected
                connection.transport.write(data)
                await exchange.done.wait()
        except TimeoutError:
            exchange.fail("timeout", f"no end after {self._timeout_s:g} s")
        except OSError as error:
            exchange.fail("cannot connect", error.strerror or str(error))
        finally:
            if connection is not None:
                self._give_back(connection, exchange)
        return exchange

    async def _connection(self) -> _Connection:
        while self._free:
            connection = self._free.pop()
            if not connection.is_lost:
                return connection
        loop, address = asyncio.get_running_loop(), self._address
        _, made = await loop.create_connection(
            _Connection, address.host, address.port, ssl=address.tls
        )
        return made

    def _give_back(self, connection: _Connection, exchange: Exchange) -> None:
        connection.exchange = None
        is_usable = exchange.parser.is_complete and exchange.parser.may_stay_open
        if is_usable and not connection.is_lost:
            self._free.append(connection)
        elif connection.transport is not None:
            connection.transport.abort()
