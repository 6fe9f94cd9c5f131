"""A server in a subprocess, as a user starts one, and a client for raw requests to it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx
import psutil

import scripted_server

if TYPE_CHECKING:
    import ssl

SCRIPTED = (sys.executable, str(Path(scripted_server.__file__)))
OCTAVO = (sys.executable, "-m", "octavo", "serve")


class ServerProcess:
    """Starts a server and waits until it is healthy; stops it when the block is left.

    `verify` is whom its client trusts, and shows, where the server speaks HTTPS.
    """

    def __init__(
        self,
        *command: str,
        start_timeout_s: float = 150.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self.started_s = time.monotonic()
        self.log_path = Path(tempfile.mkstemp(prefix="octavo-test-", suffix=".log")[1])
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.url = ""
        self._verify = verify
        self._wait_until_healthy(start_timeout_s)
        self.ready_after_s = time.monotonic() - self.started_s
        self.http = httpx.Client(base_url=self.url, timeout=60, verify=verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        return self.log_path.read_bytes().decode("utf-8")

    @property
    def engine(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def post(self, path: str, body: object = None, **fields: object) -> httpx.Response:
        """POST JSON; bytes are sent as they are."""
        if isinstance(body, bytes):
            return self.http.post(path, content=body)
        return self.http.post(path, json=fields if body is None else body)

    def events(self, path: str, **fields: object) -> list[dict]:
        """Return the events of a streamed answer; checks that it ends with [DONE]."""
        with self.http.stream("POST", path, json={"stream": True, **fields}) as response:
            text = "".join(response.iter_text())
        assert response.status_code == 200, text
        lines = [line for line in text.split("\n\n") if line]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def metrics(self) -> dict[str, float]:
        """Return /metrics by name, without our prefix; counters of a reason as name:reason."""
        found = {}
        for line in self.http.get("/metrics").text.splitlines():
            match = re.fullmatch(r"octavo:(\w+)\{(.*)\} (\S+)", line)
            if match and "le=" not in match.group(2):
                reason = re.search(r'finished_reason="(\w+)"', match.group(2))
                name = match.group(1) + (f":{reason.group(1)}" if reason else "")
                found[name] = float(match.group(3))
        return found

    def until(self, is_true, timeout_s: float = 10.0) -> float:
        """Wait until a condition holds; returns the seconds it took."""
        start_s = time.monotonic()
        while not is_true():
            assert time.monotonic() - start_s < timeout_s, "it did not happen in time"
            time.sleep(0.02)
        return time.monotonic() - start_s

    def is_idle(self) -> bool:
        metrics = self.metrics()
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return all(metrics[name] == 0 for name in names)

    def send_and_leave(self, path: str, fields: dict, *, after_s: float) -> None:
        """Send a request over a socket of its own, and close that without reading to the end."""
        body = json.dumps(fields).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with self.connect() as connection:
            connection.sendall(head.encode() + body)
            time.sleep(after_s)

    def connect(self, receive_bytes: int | None = None) -> socket.socket:
        """Return a new connection; `receive_bytes` makes its window small."""
        connection = socket.socket()
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect(self.address)
        return connection

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 20.0) -> int:
        """Send a signal and return the exit code; nothing may be left of the server."""
        self.http.close()
        children = self._children()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(timeout_s)
        finally:
            self.process.kill()
        gone, alive = psutil.wait_procs(children, 5)
        assert not alive, f"left behind: {alive}, beside {gone}"
        return code

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _is_healthy(self) -> bool:
        return httpx.get(f"{self.url}/health", verify=self._verify).status_code == 200

    def _wait_until_healthy(self, timeout_s: float) -> None:
        while time.monotonic() - self.started_s < timeout_s:
            if self.process.poll() is not None:
                raise AssertionError(f"exit code {self.process.returncode}\n{self.log}")
            if not self.url and (found := re.search(r"at (https?)://\S+:(\d+)", self.log)):
                self.url = f"{found.group(1)}://127.0.0.1:{found.group(2)}"
            if self.url and self._is_healthy():
                return
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"not healthy after {timeout_s} s\n{self.log}")


def scripted_server_process(
    *, verify: ssl.SSLContext | bool = True, **options: object
) -> ServerProcess:
    """Start a server whose engine is scripted; `options` as in `scripted_server`."""
    return ServerProcess(*SCRIPTED, json.dumps(options), verify=verify)


def octavo_serve(*flags: str) -> ServerProcess:
    """Start `octavo serve`; port 0 takes a free one."""
    return ServerProcess(*OCTAVO, *flags, "--host", "127.0.0.1", "--port", "0")


def run_to_exit(*flags: str, timeout_s: float = 60.0) -> tuple[int, str, float]:
    """Run `octavo serve` with flags that cannot work; returns exit code, stderr and seconds."""
    start_s = time.monotonic()
    done = subprocess.run(
        [*OCTAVO, *flags], capture_output=True, text=True, timeout=timeout_s, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    return done.returncode, done.stderr, time.monotonic() - start_s
