"""How errors are written at the paths of Anthropic's API.

Knows their shape and types. Does not know what causes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from octavo.serving.logs import request_id_var

if TYPE_CHECKING:
    from octavo.serving.http_errors import ApiError

#: the header in which Anthropic's clients look for the request's id
ID_HEADER: Final = "request-id"

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_SERVER_ERROR = 500
_CONTEXT_FULL = "context_length_exceeded"


def error_body(told: ApiError) -> bytes:
    """Return an error as JSON. A full context is told in the words that clients look for."""
    other = "api_error" if told.status >= _SERVER_ERROR else "invalid_request_error"
    prefix = "prompt is too long: " if told.code == _CONTEXT_FULL else ""
    error = {"type": _TYPES.get(told.status, other), "message": prefix + told.message}
    return msgspec.json.encode(
        {"type": "error", "error": error, "request_id": request_id_var.get()}
    )
