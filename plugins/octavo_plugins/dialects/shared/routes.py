"""Routes whose answers are whole or streamed, as the request wishes.

Knows Litestar's handlers. Does not know paths, bodies or answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from litestar import Request, post
from litestar.response.base import ASGIResponse

from octavo.serving.openapi import BODY, SUMMARY

if TYPE_CHECKING:
    import msgspec
    from litestar import Response
    from litestar.handlers import HTTPRouteHandler

    from octavo.serving.streaming import EventStream


class Handle(Protocol):
    """Answers one request."""

    async def __call__(self, request: Request[Any, Any, Any]) -> Response[Any] | EventStream:
        """Return the answer. Raises Octavo's errors."""


def answering(
    path: str, handle: Handle, body: type[msgspec.Struct] | None = None
) -> HTTPRouteHandler:
    """Return a route that answers POST as `handle` does; `body` is what it reads."""
    told: dict[str, Any] = {SUMMARY: handle.__doc__ or ""}
    if body is not None:
        told[BODY] = body

    @post(path, opt=told)
    async def route(request: Request[Any, Any, Any]) -> ASGIResponse:
        """Return the answer as the one type that a handler may announce."""
        reply = await handle(request)
        if isinstance(reply, ASGIResponse):
            return reply
        response: ASGIResponse = reply.to_asgi_response(None, request)
        return response

    return route
