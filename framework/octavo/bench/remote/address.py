"""Where a server is, and how a request to it begins.

Knows URLs and heads of requests. Does not know answers.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from octavo.errors import ConfigError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A server. `prefix` stands before `/v1`; `api_key` is never printed."""

    host: str
    port: int
    prefix: str
    tls: ssl.SSLContext | None
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, api_key: str | None = None) -> Address:
        """Return the address of a URL, with or without `/v1` at its end. Raises ConfigError."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            port = None
        if port is None or not parts.hostname or parts.scheme not in _PORTS:
            raise ConfigError(f"invalid --base-url {url!r}", "write it as http://localhost:8000")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(parts.hostname, port, prefix, tls, api_key)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return a whole request, to be sent as it is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{method} {self.prefix}{path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "Accept: text/event-stream, application/json",
            "User-Agent: octavo-bench",
        ]
        if self.api_key:
            lines.append(f"Authorization: Bearer {self.api_key}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body
