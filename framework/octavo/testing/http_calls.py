"""Calls of an HTTP API without a network: one exchange with an ASGI application, and its answer.

Knows ASGI, JSON and events. Does not know any dialect.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.serving.app import Shell

_ERROR, _SERVER_ERROR = 400, 500
_EVENTS = "text/event-stream"


@dataclass(slots=True)
class Answer:
    """What an application sent. `is_complete`: it said that this is all."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    is_complete: bool = False

    @property
    def body(self) -> bytes:
        """Return all that was sent."""
        return b"".join(self.chunks)

    @property
    def is_error(self) -> bool:
        """Return whether it is an error of any kind."""
        return self.status >= _ERROR

    @property
    def is_crash(self) -> bool:
        """Return whether it is an error of the server."""
        return self.status >= _SERVER_ERROR

    @property
    def is_refusal(self) -> bool:
        """Return whether it is an error of the request."""
        return self.is_error and not self.is_crash

    @property
    def is_stream(self) -> bool:
        """Return whether it came as events."""
        return self.headers.get("content-type", "").startswith(_EVENTS)

    def told(self) -> str:
        """Return everything that can be read in it."""
        return f"{self.headers} {self.body.decode('utf-8', 'replace')}"

    def error(self, what: str) -> dict[str, Any]:
        """Return the error that it is. Raises PromiseBroken unless it is a JSON object."""
        if not self.is_complete or not self.is_error:
            raise PromiseBroken(f"{what}: the answer is {self.status}, no error")
        if not self.headers.get("content-type", "").startswith("application/json"):
            raise PromiseBroken(f"{what}: the error's type is {self.headers.get('content-type')}")
        try:
            error = json.loads(self.body)
        except ValueError as wrong:
            raise PromiseBroken(f"{what}: the error is not JSON: {self.body[:200]!r}") from wrong
        if not isinstance(error, dict) or not longest_text(error):
            raise PromiseBroken(f"{what}: the error says nothing: {self.body[:200]!r}")
        return error

    def events(self, what: str) -> list[Any]:
        """Return the data of its events, or the lines of another stream, each as JSON.

        Markers that are no JSON (`[DONE]`) are texts. Raises PromiseBroken for what is neither.
        """
        if not self.is_complete:
            raise PromiseBroken(f"{what}: the stream has no end")
        text = self.body.decode()
        if not self.is_stream:
            return [_json(line, what) for line in text.splitlines() if line]
        if text and not text.endswith("\n\n"):
            raise PromiseBroken(f"{what}: the last event has no end: {text[-80:]!r}")
        return [_data(block, what) for block in text.split("\n\n") if block]


def _data(block: str, what: str) -> Any:
    """Return the data of one event."""
    lines = [line for line in block.splitlines() if not line.startswith(":")]
    wrong = [line for line in lines if not line.startswith(("data:", "event:", "id:", "retry:"))]
    if wrong:
        raise PromiseBroken(f"{what}: {wrong[0][:80]!r} is no line of an event")
    data = "\n".join(
        line.removeprefix("data:").strip() for line in lines if line.startswith("data:")
    )
    is_marker = not data or (data.startswith("[") and data.strip("[]").isupper())
    return data if is_marker else _json(data, what)


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as wrong:
        raise PromiseBroken(f"{what}: {text[:80]!r} is not JSON") from wrong


def longest_text(value: object) -> str:
    """Return the longest text in something of JSON, keys apart."""
    if isinstance(value, str):
        return value
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list):
        parts = value
    return max((longest_text(one) for one in parts), key=len, default="")


@dataclass(slots=True)
class Exchange:
    """One call of an application. `leaves`: asked after each part of the answer."""

    shell: Shell
    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    leaves: Callable[[Answer], bool] | None = None
    answer: Answer = field(default_factory=Answer)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _is_read: bool = False

    async def run(self) -> Answer:
        """Call the application, and return what it answered."""
        path, _, query = self.path.partition("?")
        given = {"host": "test", "content-type": "application/json", **self.headers}
        given["content-length"] = str(len(self.body))
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
            "method": self.method, "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "state": {}, "extensions": {},
            "headers": [(k.lower().encode(), v.encode()) for k, v in given.items()],
        }  # fmt: skip
        await self.shell(scope, self._receive, self._send)
        return self.answer

    async def _receive(self) -> Any:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self.gone.is_set():
            return  # as servers do: whoever writes is told by `receive` alone
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = {k.decode(): v.decode() for k, v in message.get("headers", ())}
        elif message["type"] == "http.response.body":
            if message.get("body"):
                self.answer.chunks.append(message["body"])
            self.answer.is_complete = not message.get("more_body", False)
        if self.answer.is_complete or (self.leaves is not None and self.leaves(self.answer)):
            self.gone.set()
