"""Streams over raw sockets, read with as little work as can be: `raw_reader.py PORT [--times]`.

One process sends each body of the JSON list on its input over a connection of its own, counts the
events that come, and prints what it took as JSON; with `--times` also what came when. Nothing is
decoded: what a client costs is to be small beside a server.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from typing import Any

_EVENT = b"data: "
_LAST = b"data: [DONE]"
_GOOD = b"HTTP/1.1 200"
_READ_BYTES = 1 << 16
_PATIENCE_S = 300.0


class _Stream:
    """One connection; `num_events` counts what came, `is_done` is set by the last.

    `arrivals`, where kept, are the times of reading and the bytes that were read then.
    """

    def __init__(self, port: int, body: bytes, *, keeps_times: bool = False) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.num_events = 0
        self.is_done = False
        self.is_ok = False
        self.arrivals: list[tuple[float, bytes]] | None = [] if keeps_times else None
        self._tail = b""
        self._head = (
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        self._body = body

    def send(self) -> None:
        """Send the request."""
        self.socket.sendall(self._head + self._body)
        self.socket.setblocking(False)  # noqa: FBT003 - takes no keyword

    def read(self) -> None:
        """Read what is there."""
        data = self.socket.recv(_READ_BYTES)
        if self.arrivals is not None:
            self.arrivals.append((time.perf_counter(), data))
        seen = self._tail + data
        self.is_ok = self.is_ok or seen.startswith(_GOOD)
        is_last = _LAST in seen
        self.is_done = is_last or not data
        # what begins in the tail is counted with the bytes that follow it
        tail = max(0, len(seen) - len(_LAST) + 1)
        self.num_events += seen.count(_EVENT, 0, tail + len(_EVENT) - 1) - is_last
        self._tail = seen[tail:]


def read_all(port: int, bodies: list[bytes], *, keeps_times: bool = False) -> dict[str, Any]:
    """Send all bodies at once, and return seconds, events and this process' CPU."""
    streams = [_Stream(port, body, keeps_times=keeps_times) for body in bodies]
    waiting = selectors.DefaultSelector()
    cpu_s, start_s = time.process_time(), time.perf_counter()
    for stream in streams:
        stream.send()
        waiting.register(stream.socket, selectors.EVENT_READ, stream)
    num_open = len(streams)
    while num_open and time.perf_counter() - start_s < _PATIENCE_S:
        for key, _ in waiting.select(1.0):
            key.data.read()
            if key.data.is_done:
                waiting.unregister(key.data.socket)
                num_open -= 1
    elapsed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    for stream in streams:
        stream.socket.close()
    found = {
        "elapsed_s": elapsed_s,
        "cpu_s": cpu_s,
        "events": sum(stream.num_events for stream in streams),
        "failed": sum(not (stream.is_ok and stream.is_done) for stream in streams),
    }
    if keeps_times:
        found["arrivals"] = [
            [(time_s, data.decode("utf-8", "replace")) for time_s, data in stream.arrivals or ()]
            for stream in streams
        ]
    return found


if __name__ == "__main__":
    sent = [text.encode() for text in json.load(sys.stdin)]
    seen = read_all(int(sys.argv[1]), sent, keeps_times="--times" in sys.argv)
    print(json.dumps(seen))  # noqa: T201 - its answer
