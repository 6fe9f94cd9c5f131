"""From an exception to what a client is told: status, type, parameter, code.

Knows Octavo's errors, Litestar's, and OpenAI's names for them; a dialect with another shape of
error writes the same `ApiError` its own way. Does not know which routes there are.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.serialization import msgspec_hooks

from octavo.errors import (
    OctavoError,
    QueueFullError,
    RequestError,
    RequestNotFoundError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_logger = logging.getLogger("octavo.serving")

#: what every message about a full context holds; client libraries look for the same words
_CONTEXT_WORDS = "maximum context length is"
_SERVER_ERROR = 500
_UNAVAILABLE = 503
_TIMEOUT = 504
_NOT_FOUND = 404
_RETRY_AFTER_S = 1


class ClientGoneError(RequestError):
    """The client closed its connection, so there is nobody to answer (499, as nginx has it)."""

    http_status = 499


class BodyTooLargeError(RequestError):
    """A request's body is larger than the server takes; it was not read to its end."""

    http_status = 413


class NotServedError(UnsupportedError):
    """A route of the API that nothing here stands behind."""

    http_status = 501


class PageRefusedError(RequestError):
    """A page of a site that may not, asked to change the server."""

    http_status = 403


class UnauthorizedError(RequestError):
    """A request without a valid key."""

    http_status = 401


@dataclass(frozen=True, slots=True)
class ApiError:
    """What a client is told, whatever the dialect's shape."""

    status: int
    message: str
    type: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """Return OpenAI's shape of an error, as JSON."""
        error = {
            "message": self.message, "type": self.type, "param": self.param, "code": self.code
        }  # fmt: skip
        return msgspec.json.encode({"error": error})


def api_error_of(error: BaseException) -> ApiError:
    """Return what a client is told of an exception.

    What is not Octavo's or Litestar's own is a fault of the server: its text goes to the log
    and not to the client.
    """
    if isinstance(error, OctavoError):
        return _of_octavo(error)
    if isinstance(error, HTTPException):
        return _of_litestar(error)
    if isinstance(error, RecursionError) and _is_of_body(error):
        return _of_octavo(RequestError("the request's body is nested too deeply"))
    return ApiError(_SERVER_ERROR, "internal server error", _type_of(_SERVER_ERROR))


def _of_octavo(error: OctavoError) -> ApiError:
    status = error.http_status
    message = "; ".join((error.headline.rstrip("."), *error.facts))
    return ApiError(
        status,
        message.encode("utf-8", "replace").decode(),
        _type_of(status),
        getattr(error, "param", None),
        _code_of(error),
        {"Retry-After": str(_RETRY_AFTER_S)} if status == _UNAVAILABLE else {},
    )


def _of_litestar(error: HTTPException) -> ApiError:
    """Return what is told of an error of Litestar's: a body's faults are named, field by field."""
    extra = error.extra if isinstance(error.extra, list) else []
    faults = [one for one in extra if isinstance(one, dict) and "message" in one]
    told = [f"{one.get('key', 'body')}: {one['message']}" for one in faults]
    return ApiError(
        error.status_code,
        "; ".join((error.detail, *told)),
        _type_of(error.status_code),
        next((str(one["key"]) for one in faults if "key" in one), None),
        headers=dict(error.headers or {}),
    )


def _is_of_body(error: RecursionError) -> bool:
    """Return whether it was raised where Litestar reads a body."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == msgspec_hooks.__file__


def _code_of(error: OctavoError) -> str | None:
    if isinstance(error, QueueFullError):
        return "queue_full"
    if isinstance(error, RequestNotFoundError):
        return "model_not_found" if error.param == "model" else "not_found"
    if isinstance(error, UnauthorizedError):
        return "invalid_api_key"
    if isinstance(error, BodyTooLargeError):
        return "request_too_large"
    if error.http_status == _TIMEOUT:
        return "request_timeout"
    if isinstance(error, RequestError):
        return "context_length_exceeded" if _CONTEXT_WORDS in error.headline else None
    return "engine_unavailable" if error.http_status == _UNAVAILABLE else None


def _type_of(status: int) -> str:
    if status < _SERVER_ERROR:
        return "invalid_request_error"
    return "service_unavailable_error" if status == _UNAVAILABLE else "server_error"


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How errors are written at a path and all below it.

    `id_header` is a further header in which all answers there carry the request's id.
    """

    prefix: str
    body: Callable[[ApiError], bytes]
    id_header: str | None = None

    def covers(self, path: str) -> bool:
        """Return whether a path is the prefix or below it."""
        return path == self.prefix or path.startswith(f"{self.prefix.rstrip('/')}/")


class ErrorShapes:
    """The shapes of all paths: OpenAI's, where no dialect has another."""

    def __init__(self, shapes: Iterable[ErrorShape] = ()) -> None:
        self._shapes = sorted(shapes, key=lambda one: -len(one.prefix))
        self._other = ErrorShape("", ApiError.body)

    def of(self, path: str) -> ErrorShape:
        """Return the shape of a path's errors: that of the longest prefix."""
        return next((one for one in self._shapes if one.covers(path)), self._other)

    def respond(self, request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        """Answer a request with an error: Litestar's handler of last resort."""
        told = api_error_of(error)
        if told.status >= _SERVER_ERROR and told.status not in {_UNAVAILABLE, _TIMEOUT}:
            _logger.error("a request failed: %s", error, exc_info=error)
        return Response(
            self.of(request.scope["path"]).body(told),
            status_code=told.status,
            media_type="application/json",
            headers=told.headers,
        )
