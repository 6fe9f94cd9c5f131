"""Calls of an ASGI application in its own process, without a socket.

Knows ASGI. Does not know what answers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from octavo.batch.lines import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    App = Callable[..., Awaitable[None]]

_NO_ANSWER = 500


async def post(app: App, path: str, body: bytes, request_id: str) -> Answer:
    """Return what an application answers to JSON. When this is cancelled the request is aborted."""
    exchange = _Exchange(body)
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": "POST", "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "headers": headers, "client": None, "server": None,
    }  # fmt: skip
    await app(scope, exchange.receive, exchange.send)
    return exchange.answer()


class _Exchange:
    """Both ends of one request, of which the whole answer is kept."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        """Give the body; nobody leaves before the answer is there."""
        if self._body is None:
            await asyncio.get_running_loop().create_future()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Keep a part of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.lower(): value for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            self._pieces.append(message.get("body", b""))

    def answer(self) -> Answer:
        """Return the answer."""
        return Answer(
            self._status or _NO_ANSWER,
            self._headers.get(b"x-request-id", b"").decode("latin-1"),
            b"".join(self._pieces),
            self._headers.get(b"content-type", b""),
        )
