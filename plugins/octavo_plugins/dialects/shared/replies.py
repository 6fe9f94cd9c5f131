"""Replies in JSON that msgspec has written.

Knows Litestar's Response. Does not know what is in a reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

encode = msgspec.json.Encoder().encode


def json_reply(answer: Any, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    """Return a 200 with an answer as JSON."""
    return Response(
        encode(answer),
        status_code=200,
        media_type="application/json",
        headers=dict(headers or {}),
    )
