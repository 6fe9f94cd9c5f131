"""Compiles a grammar once in a process of its own, before it may be compiled in the engine's.

Schemas and expressions come from anyone, and some take for ever, all memory, or the whole stack.
In the engine's process that could not be stopped; there it can.

Knows processes and limits. Does not know what a grammar says, nor which library compiles it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octavo.errors import GrammarError

if TYPE_CHECKING:
    from octavo_plugins.grammars.options import TrialOptions

_FOLDER: Final = Path(__file__).parent


class Trial:
    """Hands grammars to processes that are kept for the next ones. `check` is thread-safe.

    There are as many as were needed at once; one that was ended is replaced when it is needed.
    One that another ended, such as the system when memory is short, says nothing of a grammar: it
    is tried once more, by a new process.

    `program` is the file beside this one that such a process runs: it reads `preamble`, a line,
    says in a line that it is ready, and then answers each line, which is a JSON text, by one. What
    it takes to be ready does not count.
    """

    def __init__(self, program: str, limits: TrialOptions, preamble: bytes = b"") -> None:
        self._program = _FOLDER / program
        self._preamble = preamble + b"\n"
        self._max_s = limits.max_compile_s
        self._max_mb = limits.max_compile_mb
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: set[subprocess.Popen[bytes]] = set()
        self._ready: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def check(self, source: str) -> str | None:
        """Return the library's complaint about a grammar, None when it has none.

        Raises GrammarError when the grammar exceeds time, memory or stack, and after `close`.
        """
        answer = self._try(source, is_new=False)
        if answer is None:
            answer = self._try(source, is_new=True)
        if answer is None:
            raise GrammarError(*self._reasons(is_late=False))
        return answer or None

    def _try(self, source: str, *, is_new: bool) -> str | None:
        """Return one process's answer; None when it ended over it. Raises GrammarError if late."""
        process = self._take(is_new=is_new)
        is_late = threading.Event()
        timer = threading.Timer(self._max_s, _kill, (process, is_late))
        answer = None
        try:
            if process in self._ready or _ask(process, self._preamble) is not None:
                self._ready.add(process)
                timer.start()
                answer = _ask(process, json.dumps(source).encode() + b"\n")
        finally:
            timer.cancel()
            self._give_back(process, is_usable=answer is not None)
        if answer is None and is_late.is_set():
            raise GrammarError(*self._reasons(is_late=True))
        return answer

    def close(self) -> None:
        """End all processes, also those at work; twice is fine."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.kill()  # whoever waits for its answer puts it away
        for process in idle:
            _end(process)

    def _reasons(self, *, is_late: bool) -> tuple[str, str]:
        if self._is_closed:
            return "the engine is closing", "no grammar is compiled any more"
        if is_late:
            return f"compiling takes longer than {self._max_s:g} s", "make it smaller"
        limit = f"compiling takes more than {self._max_mb} MB, or is nested too deeply"
        return limit, "make it smaller"

    def _take(self, *, is_new: bool) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise GrammarError(*self._reasons(is_late=False))
            process = self._start() if is_new else self._idle_one() or self._start()
            self._busy.add(process)
            return process

    def _idle_one(self) -> subprocess.Popen[bytes] | None:
        """Take a process that has not been ended meanwhile, if there is one."""
        while self._idle:
            process = self._idle.pop()
            if process.poll() is None:
                return process
            self._ready.discard(process)
            _end(process)
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: nothing of the folder beside the program is imported by accident
        command = [sys.executable, "-P", str(self._program), str(self._max_mb)]
        try:
            return subprocess.Popen(  # noqa: S603 - our own program, with a number
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in the terminal is not meant for it
            )
        except OSError as error:
            raise GrammarError(
                "no process could be started to compile grammars in", str(error)
            ) from error

    def _give_back(self, process: subprocess.Popen[bytes], *, is_usable: bool) -> None:
        with self._lock:
            self._busy.discard(process)
            if is_usable and not self._is_closed:
                self._idle.append(process)
                return
        self._ready.discard(process)
        _end(process)


def _ask(process: subprocess.Popen[bytes], line: bytes) -> str | None:
    """Send a line and return the answer; None when the process ended over it."""
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise AssertionError("a trial process has pipes")
    try:
        stdin.write(line)
        stdin.flush()
        reply = stdout.readline()
    except OSError:
        return None
    if not reply:
        return None
    answer: str = json.loads(reply)
    return answer


def _kill(process: subprocess.Popen[bytes], is_late: threading.Event) -> None:
    is_late.set()
    process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, which is fine when it has ended, and close its pipes."""
    process.kill()
    process.communicate()
