"""A server in processes of its own, and what they use of the machine.

Knows processes. Does not know what is asked of them.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import Self

import psutil

_START_S = 180.0
_STOP_S = 20.0
_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds used so far, and bytes of memory that no other process shares."""

    http_cpu_s: float
    engine_cpu_s: float
    http_bytes: int
    engine_bytes: int

    @property
    def all_bytes(self) -> int:
        """Return the memory of all processes together."""
        return self.http_bytes + self.engine_bytes


class Server:
    """`octavo serve` with some flags, from its start until the block is left."""

    def __init__(self, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "octavo", "serve", *flags, "--port", str(self.port)]
        command += ["--host", "127.0.0.1", "--no-access-log", "--log-level", "warning"]
        self._process = subprocess.Popen(command)  # noqa: S603 - our own command
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        end_s = time.monotonic() + _START_S
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                self.get("/health")
            except OSError:
                time.sleep(0.1)
            else:
                return self
        self.__exit__()
        raise SystemExit("the server did not start")

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait(_STOP_S)

    def get(self, path: str) -> str:
        """Return what a route answers."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:  # noqa: S310 - our own
            text: str = answer.read().decode()
        return text

    def usage(self) -> Usage:
        """Return what the server's process and those it started have used."""
        http = psutil.Process(self._process.pid)
        engines = http.children(recursive=True)
        return Usage(
            _cpu_s(http),
            sum(map(_cpu_s, engines)),
            http.memory_full_info().uss,
            sum(engine.memory_full_info().uss for engine in engines),
        )

    def gauges(self) -> dict[str, float]:
        """Return what runs, what waits, and the share of blocks in use."""
        text = self.get("/metrics")
        found = {}
        for name in _GAUGES:
            match = re.search(rf"^octavo:{name}\{{.*\}} (\S+)$", text, re.MULTILINE)
            found[name] = float(match.group(1)) if match else -1.0
        return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
