"""The process of one rank: `python -m octavo_plugins.executors.rank_process --fd N`.

A thread reads messages from the beginning, while the main thread still imports torch and loads a
share of the model. The process ends when its socket does: however its parent dies, no rank is
left behind.

Knows messages and their socket. Does not know what a rank does with them.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from octavo.openmp import let_threads_sleep
from octavo.serving.framing import FrameBuffer
from octavo_plugins.executors import rank_wire as wire

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("octavo.rank")

_WORKER_MODULE = "octavo_plugins.executors.rank_worker"


class Channel:
    """The socket to the executor: sends from any thread, and a thread that reads."""

    def __init__(self, sock: socket.socket) -> None:
        self.messages: SimpleQueue[wire.ToRank] = SimpleQueue()
        self._sock = sock
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="octavo-rank-reader", daemon=True).start()

    def send(self, message: wire.FromRank) -> None:
        """Send a message. When nobody is there to read it, the reader ends the process."""
        data = wire.encode(message)
        with self._lock:
            try:
                self._sock.sendall(data)
            except OSError:
                logger.debug("the executor has gone")

    def _read(self) -> None:
        frames = FrameBuffer()
        try:
            while data := self._receive():
                for body in frames.feed(data):
                    self.messages.put(wire.decode_to_rank(body))
        except Exception:
            logger.exception("a message cannot be read")
            os._exit(1)
        os._exit(0)  # whatever the main thread is at, nobody waits for it

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(1 << 20)
        except OSError:
            return b""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process. Its parent passes the number of an inherited, connected socket."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="inherited socket to the executor")
    args = parser.parse_args(argv)
    sock = socket.socket(fileno=args.fd)
    sock.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM):
        # as the engine's own process: whoever drains requests decides when this one ends
        signal.signal(number, signal.SIG_IGN)
    let_threads_sleep()
    channel = Channel(sock)
    # imports torch, and only now: the thread of the channel must already watch the socket
    code: int = importlib.import_module(_WORKER_MODULE).serve(channel)
    return code


if __name__ == "__main__":
    sys.exit(main())
