"""The HTTP shell around the dialects: request ids, keys, body limits, errors, the access log.

Knows ASGI and Litestar. Does not know any route: those are the dialects'.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import uuid
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from litestar import Litestar

from octavo.serving.cors import cors_headers, cors_of
from octavo.serving.deadlines import DeadlineError, within_deadline
from octavo.serving.http_errors import (
    BodyTooLargeError,
    ClientGoneError,
    ErrorShapes,
    UnauthorizedError,
    api_error_of,
)
from octavo.serving.logs import request_id_var
from octavo.serving.openapi import openapi_route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litestar.types import HTTPScope, Message, Receive, Send

    from octavo.config.schema import ServerConfig
    from octavo.interfaces.dialect import Dialect
    from octavo.serving.context import ServingContext
    from octavo.serving.deadlines import Deadline
    from octavo.serving.http_errors import ErrorShape

_access_logger = logging.getLogger("octavo.access")
_logger = logging.getLogger("octavo.serving")

#: routes that need no key, so that a load balancer can watch a guarded server
OPEN_PATHS = frozenset({"/health", "/live", "/ready", "/ping"})
_MAX_REQUEST_ID_CHARS = 128
_BEARER = b"bearer "


def build_app(context: ServingContext, dialects: Iterable[Dialect]) -> Shell:
    """Return the ASGI application that serves these dialects."""
    dialects = tuple(dialects)
    shapes = ErrorShapes(shape for dialect in dialects for shape in dialect.error_shapes())
    app = Litestar(
        route_handlers=[
            openapi_route,
            *(route for dialect in dialects for route in dialect.routes(context)),
        ],
        exception_handlers={Exception: shapes.respond},
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,  # the shell limits it, before Litestar reads anything
        cors_config=cors_of(context.settings),
    )
    return Shell(app, context.settings, shapes)


class Shell:
    """An ASGI application that does what is the same for all routes, then asks Litestar."""

    def __init__(
        self, app: Litestar, settings: ServerConfig, shapes: ErrorShapes | None = None
    ) -> None:
        self.litestar = app
        self._shapes = shapes or ErrorShapes()
        self._keys = tuple(key.encode() for key in settings.api_key)
        self._open_paths = OPEN_PATHS | ({"/metrics"} if settings.open_metrics else set())
        self._max_body_bytes = settings.max_body_bytes
        self._timeout_s = settings.request_timeout_s
        self._is_logging = settings.access_log

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one connection's event: a request, or the life of the server."""
        if scope["type"] != "http":
            await self.litestar(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        exchange = _Exchange(_request_id(headers), self._shapes.of(scope["path"]), send)
        exchange.add_headers(cors_headers(self.litestar.cors_config, headers.get(b"origin")))
        token = request_id_var.set(exchange.request_id)
        try:
            await self._serve(scope, headers, receive, exchange)
        finally:
            self._log(scope, exchange)
            request_id_var.reset(token)

    async def _serve(
        self, scope: HTTPScope, headers: dict[bytes, bytes], receive: Receive, exchange: _Exchange
    ) -> None:
        try:
            self._check_key(scope, headers)
            body = _LimitedBody(receive, self._max_body_bytes)
            body.check_announced(headers.get(b"content-length"))
            async with within_deadline(self._timeout_s) as deadline:
                exchange.deadline = deadline
                watcher = asyncio.create_task(body.watch(deadline))
                try:
                    await self.litestar(_as_get(scope), body.receive, exchange.send)
                finally:
                    watcher.cancel()
        except (UnauthorizedError, BodyTooLargeError, DeadlineError) as error:
            await exchange.send_error(error)
        except ClientGoneError as error:
            exchange.status = error.http_status  # for the log: nobody is there to be answered

    def _check_key(self, scope: HTTPScope, headers: dict[bytes, bytes]) -> None:
        """Compare with every key, in constant time, so that timing tells nothing of them."""
        if not self._keys or scope["path"] in self._open_paths:
            return
        if scope["method"] == "OPTIONS" and self.litestar.cors_config is not None:
            return  # browsers ask without a key whether they may send one
        bearer = headers.get(b"authorization", b"")
        has_scheme = bearer[: len(_BEARER)].lower() == _BEARER
        given = bearer[len(_BEARER) :].strip() if has_scheme else b""
        both = given, headers.get(b"x-api-key", b"")  # some clients send a key of another's too
        if not sum(hmac.compare_digest(one, key) for one in both for key in self._keys):
            raise UnauthorizedError(
                "the API key is missing or wrong",
                "send it as the header `Authorization: Bearer KEY` or `x-api-key: KEY`",
            )

    def _log(self, scope: HTTPScope, exchange: _Exchange) -> None:
        is_probe = scope["path"] in OPEN_PATHS and exchange.status == HTTPStatus.OK
        if is_probe or not self._is_logging:
            return
        fields: dict[str, Any] = {
            "method": scope["method"],
            "path": scope["path"],
            "status": exchange.status,
            "ms": round((time.monotonic() - exchange.started_s) * 1000, 1),
        }
        _access_logger.info("request", extra={"fields": fields})


def _as_get(scope: HTTPScope) -> HTTPScope:
    """Return a HEAD as the GET whose head it asks for; the server itself leaves the body out."""
    if scope["method"] != "HEAD":
        return scope
    return cast("HTTPScope", {**scope, "method": "GET"})


class _Exchange:
    """One request's answer on its way out: gets the request's id, and remembers the status."""

    def __init__(self, request_id: str, shape: ErrorShape, send: Send) -> None:
        self.request_id = request_id
        self._shape = shape
        self.status = 0
        self.deadline: Deadline | None = None
        self._error_headers: list[tuple[bytes, bytes]] = []
        self.started_s = time.monotonic()
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass a message on; the one that starts the answer gets the header."""
        if message["type"] == "http.response.start":
            if self.deadline is not None:
                self.deadline.leave_to_writer()
            self.status = message["status"]
            value = self.request_id.encode("latin-1")
            added = [
                (name.encode(), value) for name in ("x-request-id", self._shape.id_header) if name
            ]
            message["headers"] = [*message["headers"], *added]
        await self._send(message)

    def add_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Have errors of the shell carry these; other answers get them from Litestar."""
        self._error_headers = headers

    async def send_error(self, error: Exception) -> None:
        """Answer with an error, unless an answer has started."""
        if self.status:
            return
        told = api_error_of(error)
        body = self._shape.body(told)
        headers = [
            *self._error_headers,
            *((name.lower().encode(), value.encode()) for name, value in told.headers.items()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await self.send({"type": "http.response.start", "status": told.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


@dataclass(slots=True)
class _LimitedBody:
    """Reads a request's body, and stops when it is larger than the limit."""

    _receive: Receive
    _max_bytes: int
    _num_bytes: int = 0
    _complete: asyncio.Event = field(default_factory=asyncio.Event)

    def check_announced(self, content_length: bytes | None) -> None:
        """Refuse by the announced length, before anything is read. Raises BodyTooLargeError."""
        if content_length is not None and content_length.isdigit():
            self._check(int(content_length))

    async def receive(self) -> Any:
        """Return the next message. Raises BodyTooLargeError, and ClientGoneError in mid-body."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._complete.is_set():
            raise ClientGoneError("the client closed the connection before its request ended")
        if message["type"] == "http.request":
            self._num_bytes += len(message["body"])
            self._check(self._num_bytes)
            if not message.get("more_body", False):
                self._complete.set()
        return message

    async def watch(self, deadline: Deadline) -> None:
        """Give up a request whose client goes before an answer begins, wherever it waits."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        deadline.give_up()

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise BodyTooLargeError(
                f"the request's body is larger than {self._max_bytes} bytes",
                "send a smaller one, or raise max-body-bytes of the server",
            )


def _request_id(headers: dict[bytes, bytes]) -> str:
    """Return the client's own id for the request where it is usable, or a new one."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    is_usable = 0 < len(given) <= _MAX_REQUEST_ID_CHARS and all(
        "!" <= char <= "~" for char in given
    )
    return given if is_usable else uuid.uuid4().hex
