"""The engine process's end of the socket: messages in from a thread, messages out from any.

Knows messages and where the engine's loop is. Does not know the engine.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from octavo.serving import protocol
from octavo.serving.framing import FrameBuffer

if TYPE_CHECKING:
    import socket

#: how long a running step may still go on after the server has gone
_ORPHAN_GRACE_S = 10.0


class Inbox:
    """Messages from the reader's thread to the main one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._messages: list[protocol.ToEngine] = []
        self._is_closed = False
        self._is_woken = False

    def put(self, message: protocol.ToEngine) -> None:
        """Add a message and wake the main thread."""
        with self._condition:
            self._messages.append(message)
            self._condition.notify()

    def close(self) -> None:
        """Say that no more will come."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()

    def wake(self) -> None:
        """Let the main thread look around, although there is no message."""
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def take(self, *, is_waiting: bool) -> list[protocol.ToEngine] | None:
        """Return all messages there are, possibly none; None when no more will come.

        With `is_waiting`, sleep until there is something to return, or until woken.
        """
        with self._condition:
            while is_waiting and not (self._messages or self._is_closed or self._is_woken):
                self._condition.wait()
            self._is_woken = False
            if self._is_closed:
                return None
            messages, self._messages = self._messages, []
            return messages


class Channel:
    """The socket to the server: sends from any thread, and a thread that fills the inbox."""

    def __init__(self, sock: socket.socket) -> None:
        self.inbox = Inbox()
        self.predicted_ms = 0.0
        self.step_started_s: float | None = None
        self.is_started = False
        self.has_ended = threading.Event()
        self._sock = sock
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="octavo-reader", daemon=True).start()

    def send(self, message: protocol.FromEngine) -> None:
        """Send a message; when the server has gone there is nobody to tell, so nothing is said."""
        frame = protocol.encode_frame(message)
        with self._lock:
            try:
                self._sock.sendall(frame)
            except OSError:
                self.inbox.close()

    def pong(self, ping_id: int, *, is_loop: bool) -> None:
        """Answer a ping with where the engine is."""
        started_s = self.step_started_s
        step_ms = None if started_s is None else (time.monotonic() - started_s) * 1000.0
        self.send(protocol.Pong(ping_id, is_loop, step_ms, self.predicted_ms))

    def _read(self) -> None:
        frames = FrameBuffer()
        while data := self._receive():
            for body in frames.feed(data):
                message = protocol.decode_to_engine(body)
                if isinstance(message, protocol.Ping):
                    self.pong(message.ping_id, is_loop=False)
                self.inbox.put(message)
        self._on_end()

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(1 << 20)
        except OSError:
            return b""

    def _on_end(self) -> None:
        """The server has gone: let the step end if the engine runs, otherwise end at once."""
        self.inbox.close()
        if not self.is_started or not self.has_ended.wait(_ORPHAN_GRACE_S):
            os._exit(1)  # the main thread is inside a load or a step that cannot be interrupted
