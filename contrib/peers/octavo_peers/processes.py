"""Runs a job in a fresh process, under the Python of its engine.

Knows processes and lines. Does not know what is measured.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from octavo_peers.results import Run, case_times

if TYPE_CHECKING:
    from octavo_peers.work import Job

_FOLDER: Final = Path(__file__).resolve().parents[1]
#: characters of what an engine printed last, where it failed without saying why
_TAIL: Final = 300


@dataclass(frozen=True)
class Limits:
    """How long a process may run, and whether what its engine prints is shown as it comes."""

    timeout_s: float
    is_output_shown: bool = False


def run_job(python: str, job: Job, round_number: int, limits: Limits) -> Run:
    """Run the job to its end, and return what it measured.

    Never raises for a failure of the engine: the run has its error, and what was measured before.
    The process group is gone when this returns, also after Ctrl-C.
    """
    run, expired = Run(job.engine, round_number), threading.Event()
    job = replace(job, spawned_s=time.monotonic())
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(  # noqa: S603 - the Pythons that the user names
            [python, "-m", "octavo_peers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if limits.is_output_shown else printed,
            text=True,
            env=_environment(job),
            start_new_session=True,
        ) as process,
    ):
        timer = threading.Timer(limits.timeout_s, _expire, [process, expired])
        timer.start()
        try:
            run = _talk(process, job, run)
            process.wait()
        finally:
            timer.cancel()
            _kill(process)
        if expired.is_set():
            return replace(run, error=f"ran longer than {limits.timeout_s:g} s")
        if process.returncode and run.error is None and len(run.times) < len(job.cases):
            return replace(run, error=_reason(printed, process.returncode))
    return run


def _environment(job: Job) -> dict[str, str]:
    """Return this environment, with the number of threads where every library reads it."""
    path = os.pathsep.join(filter(None, [str(_FOLDER), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(job.num_threads)}


def _talk(process: subprocess.Popen[str], job: Job, run: Run) -> Run:
    """Hand over the job and read lines until the process has no more."""
    assert process.stdin is not None  # noqa: S101 - for mypy: both are pipes
    assert process.stdout is not None  # noqa: S101
    try:
        with process.stdin as stdin:
            json.dump(job.to_json(), stdin)
    except BrokenPipeError:
        return run  # it ended before it read: its exit code and its last words say why
    for line in process.stdout:
        values = json.loads(line)
        if "case" in values:
            run = replace(run, times=(*run.times, case_times(values)))
        elif "error" in values:
            run = replace(run, error=values["error"])
        else:
            run = replace(run, version=values["version"], start_s=values["start_s"])
    return run


def _expire(process: subprocess.Popen[str], expired: threading.Event) -> None:
    expired.set()
    _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process and all it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of them have ended by themselves


def _reason(printed: IO[bytes], code: int) -> str:
    """Return the last line that the process printed, and its exit code."""
    printed.seek(0)
    lines = printed.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing printed")
    return f"{last[-_TAIL:]} (exit code {code})"
