"""Answers that end early when nobody listens: server-sent events, and a watch on the connection.

Knows ASGI and asyncio. Does not know what is sent.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from litestar.response.streaming import ASGIStreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from litestar.types import Receive, Send


def event(data: bytes) -> bytes:
    """Return one server-sent event. `data` holds no line end, as JSON does not."""
    return b"data: " + data + b"\n\n"


def named_event(name: str, data: bytes) -> bytes:
    """Return one server-sent event that has a name."""
    return b"event: " + name.encode() + b"\n" + event(data)


class EventStream(ASGIStreamingResponse):
    """Sends the events of a generator, and closes it on every way out.

    When the client goes away the generator is closed where it stands, also while it waits or
    while the client's window is full; it must abort what it stands for in a `finally`, at once.
    """

    __slots__ = ("_events",)

    def __init__(
        self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None
    ) -> None:
        self._events = events
        super().__init__(
            iterator=events,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})},
            status_code=200,
        )

    async def send_body(self, send: Send, receive: Receive) -> None:
        """Send until the events end or the client goes."""
        async with aclosing(self._events):
            await super().send_body(send, receive)


@asynccontextmanager
async def until_disconnect(receive: Receive, on_gone: Callable[[], Any]) -> AsyncIterator[None]:
    """While inside, call `on_gone` once if the client closes its connection.

    The request's body must have been read already.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        on_gone()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
