"""Frames on a socket: four bytes of length (big-endian), then so many of a message.

Knows bytes. Does not know messages or sockets.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct(">I")


def frame(body: bytes) -> bytes:
    """Return a body as one frame."""
    return _HEADER.pack(len(body)) + body


class FrameBuffer:
    """Cuts a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take more bytes and yield each body that is complete now."""
        pending = self._pending
        pending += data
        start = 0
        while len(pending) - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(pending, start)
            end = start + _HEADER.size + length
            if len(pending) < end:
                break
            yield bytes(memoryview(pending)[start + _HEADER.size : end])
            start = end
        if start:
            del pending[:start]
