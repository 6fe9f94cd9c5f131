"""Runs an engine in a thread of its own, for programs with an event loop. Zero CPU when idle.

Knows the engine's methods, and that one thread calls them. Does not know asyncio, text or HTTP.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from octavo.errors import EngineDeadError
from octavo.faults import FAULTS, death_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineOutput, EngineRequest

    Command = tuple[Callable[[], object], Future[object]] | None

T = TypeVar("T")


class EngineThread:
    """The thread. `on_outputs` and `on_death` are called in it, and must return soon.

    Commands from any thread are carried out between steps, in order. After an error of the
    engine as a whole `on_death` is told, and every command fails with that error.
    """

    def __init__(
        self,
        engine: Engine,
        on_outputs: Callable[[Sequence[EngineOutput]], None],
        on_death: Callable[[EngineDeadError], None],
    ) -> None:
        self.engine = engine
        self._on_outputs = on_outputs
        self._on_death = on_death
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._error: EngineDeadError | None = None
        self._lock = threading.Lock()
        engine.on_ready(lambda: self._commands.put((_nothing, Future())))
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._thread.start()

    def add(self, requests: Sequence[EngineRequest]) -> Future[None]:
        """Add requests, all or none. The future raises what `Engine.add` raised."""

        def command() -> None:
            added: list[str] = []
            try:
                for request in requests:
                    self.engine.add(request)
                    added.append(request.request_id)
            except FAULTS:
                self.engine.abort(added)
                raise

        return self.call(command)

    def abort(self, request_ids: Iterable[str]) -> Future[None]:
        """Abort requests; their last outputs go to `on_outputs`."""
        ids = list(request_ids)
        return self.call(lambda: self._on_outputs(self.engine.abort(ids)))

    def call(self, command: Callable[[], T]) -> Future[T]:
        """Carry out a command between two steps. Raises EngineDeadError when it is too late."""
        future: Future[T] = Future()
        with self._lock:
            if self._error is not None:
                raise self._error
            self._commands.put((command, future))  # type: ignore[arg-type]
        return future

    def close(self) -> None:
        """End the thread and close the engine; twice is fine."""
        with self._lock:
            if self._error is None:
                self._error = EngineDeadError("the engine is closed")
                self._commands.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._obey():
                if self.engine.has_work:
                    self._on_outputs(self.engine.step())
        except FAULTS as error:  # whatever ends the loop must reach the callers
            self._die(error)
        finally:
            self._refuse_commands()
            self.engine.close()

    def _obey(self) -> bool:
        """Carry out what waits; with nothing else to do, wait for it. False: the thread ends."""
        must_wait = not self.engine.has_work
        while True:
            try:
                command = self._commands.get(block=must_wait)
            except Empty:
                return True
            if command is None:
                return False
            _carry_out(*command)
            must_wait = False

    def _die(self, error: BaseException) -> None:
        dead = death_by(error)
        with self._lock:
            self._error = dead
        self._on_death(dead)

    def _refuse_commands(self) -> None:
        error = self._error or EngineDeadError("the engine is closed")
        while not self._commands.empty():
            command = self._commands.get()
            if command is not None and command[1].set_running_or_notify_cancel():
                command[1].set_exception(error)


def _nothing() -> None:
    """Do nothing: a command that only wakes the thread up."""


def _carry_out(command: Callable[[], object], future: Future[object]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(command())
    except FAULTS as error:  # it belongs to whoever asked
        future.set_exception(error)
