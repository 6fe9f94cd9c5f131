"""Takes an HTTP/1.1 answer apart as its bytes come: status, and pieces of its body.

Knows heads, lengths and chunks (RFC 9112). Does not know sockets or what a body means.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_HEAD_END = b"\r\n\r\n"
_LINE_END = b"\r\n"
_MAX_HEAD_BYTES = 2**16


class MalformedAnswerError(ValueError):
    """Bytes that are no HTTP answer."""


@dataclass(slots=True)
class AnswerParser:
    """One answer. `is_complete` when all of it has come; `may_stay_open` of its connection."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False
    may_stay_open: bool = True
    _buffer: bytearray = field(default_factory=bytearray)
    _is_chunked: bool = False
    #: of the body, or of the chunk that has begun; None: until the connection ends
    _left_bytes: int | None = 0

    def feed(self, data: bytes) -> bytes:
        """Return what bytes add to the body. Raises MalformedAnswerError."""
        self._buffer += data
        if not self.status and not self._read_head():
            return b""
        if self._is_chunked:
            return self._chunks()
        body = bytes(self._buffer)
        self._buffer.clear()
        if self._left_bytes is not None:
            self._left_bytes -= len(body)
            self.is_complete = self._left_bytes <= 0
        return body

    def end(self) -> None:
        """Note that the connection has ended, which may be the end of the answer."""
        self.may_stay_open = False
        if self.status and not self._is_chunked and self._left_bytes is None:
            self.is_complete = True

    def _read_head(self) -> bool:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise MalformedAnswerError("the head of the answer does not end")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + len(_HEAD_END)]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise MalformedAnswerError(f"no HTTP answer: {first[:60]!r}")
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        status = int(rest[:3])
        if status < 200:  # noqa: PLR2004 - informational; the answer follows
            self.headers.clear()
            return self._read_head()
        self.status = status
        self._read_length(version)
        return True

    def _read_length(self, version: str) -> None:
        connection = self.headers.get("connection", "").lower()
        self.may_stay_open = connection != "close" and version == "HTTP/1.1"
        self._is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        self._left_bytes = int(length) if length is not None and length.isdigit() else None
        if self._is_chunked:
            self._left_bytes = 0

    def _chunks(self) -> bytes:
        """Return the data of the chunks that are complete."""
        pieces = []
        buffer, at = self._buffer, 0
        while (end := buffer.find(_LINE_END, at)) >= 0:
            try:
                size = int(bytes(buffer[at:end]).partition(b";")[0], 16)
            except ValueError as error:
                raise MalformedAnswerError("a chunk without a length") from error
            begin = end + 2
            if len(buffer) < begin + size + 2:
                break
            at = begin + size + 2
            if not size:
                self.is_complete = True
                break
            pieces.append(bytes(buffer[begin : begin + size]))
        del buffer[:at]
        return b"".join(pieces)
