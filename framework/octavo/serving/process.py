"""An engine process as the server sees it: how it is started, told and ended.

Knows processes and sockets. Does not know asyncio, requests, or what the engine does.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.serving import protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

ENGINE_COMMAND = (sys.executable, "-m", "octavo.serving.engine_process")

_KILL_WAIT_S = 5.0


@dataclass(slots=True)
class EngineProcess:
    """A started process and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    sock: socket.socket

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    def end(self, wait_s: float) -> int:
        """Wait for the process to end by itself, then kill it. Blocks. Returns its exit code."""
        try:
            return self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(_KILL_WAIT_S)

    def describe_exit(self) -> str:
        """Return how the process ended, in words."""
        code = self.process.poll()
        if code is None:
            return "it closed its socket and still runs"
        if code < 0:
            return f"it was ended by signal {-code} ({signal.Signals(-code).name})"
        return f"it exited with code {code}"


def start_engine_process(
    config_json: str, command: Sequence[str] = ENGINE_COMMAND
) -> EngineProcess:
    """Start an engine process and hand it its configuration. Returns before the model is loaded."""
    child = start_child(command)
    child.sock.sendall(protocol.encode_frame(protocol.Start(config_json)))
    child.sock.setblocking(False)  # noqa: FBT003 - takes no keyword
    return child


def start_child(command: Sequence[str]) -> EngineProcess:
    """Start a process that is given one end of a socket: `--fd N`.

    It is in a session of its own: a Ctrl-C in the terminal reaches its parent alone, which then
    lets running requests end. It gets no other file of ours, and is to end with the socket.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--fd", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return EngineProcess(process, ours)
