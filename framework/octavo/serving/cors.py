"""Which other sites' pages may ask this server from a browser: none, unless they are listed.

Knows the headers of CORS. Does not know routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar.config.cors import CORSConfig

if TYPE_CHECKING:
    from octavo.config.schema import ServerConfig


def cors_of(settings: ServerConfig) -> CORSConfig | None:
    """Return what Litestar is to do about other sites; None where none is allowed."""
    if not settings.allowed_origins:
        return None
    methods: list[Any] = list(settings.allowed_methods)
    return CORSConfig(
        allow_origins=list(settings.allowed_origins),
        allow_methods=methods,
        allow_headers=list(settings.allowed_headers),
        allow_credentials=settings.allow_credentials,
        expose_headers=["X-Request-Id", "X-Octavo-Ignored-Fields", "Retry-After"],
    )


def cors_headers(config: CORSConfig | None, origin: bytes | None) -> list[tuple[bytes, bytes]]:
    """Return the headers without which a page could not read an answer of the shell's own."""
    if config is None or origin is None or not config.is_origin_allowed(origin.decode("latin-1")):
        return []
    headers = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
    if config.allow_credentials:
        headers.append((b"access-control-allow-credentials", b"true"))
    return headers
