"""The engine process: `python -m octavo.serving.engine_process --fd N`, started by the server.

One thread reads messages, the main thread steps the engine and sends what came of it. While there
is no work the main thread sleeps on a condition, so that an idle engine costs no CPU. The process
ends when its socket does: however the server dies, no engine is left behind.

Knows messages and the engine's methods. Does not know HTTP, text or configuration.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Protocol

from octavo.config.resolved import ResolvedConfig
from octavo.errors import (
    OctavoError,
    RequestError,
    RequestFailedError,
    UnsupportedError,
)
from octavo.faults import FAULTS, death_by
from octavo.openmp import let_threads_sleep
from octavo.serving import protocol
from octavo.serving.controls import Action, Control, Controlled
from octavo.serving.engine_channel import Channel
from octavo.serving.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from octavo.engine.messages import EngineInfo, EngineOutput, EngineRequest, EngineStats
    from octavo.interfaces.adapter import AdapterSpec

_logger = logging.getLogger("octavo.engine")

_BUILD_MODULE = "octavo.engine.build"


class ServableEngine(Protocol):
    """What this process needs of an engine; `octavo.engine.engine.Engine` has it."""

    @property
    def info(self) -> EngineInfo:
        """Return what the front end must know."""

    @property
    def has_work(self) -> bool:
        """Return whether `step` would do anything."""

    @property
    def predicted_step_ms(self) -> float:
        """Return how long a full step takes at most."""

    def add(self, source: EngineRequest) -> None:
        """Queue a request. Raises `RequestError`."""

    def abort(self, request_ids: Iterable[str]) -> list[EngineOutput]:
        """End requests; unknown ids are ignored."""

    def step(self) -> list[EngineOutput]:
        """Advance. Whatever it raises means that the engine is dead."""

    def on_ready(self, call: Callable[[], None]) -> None:
        """Have `call` called, from any thread, when a held request can go on."""

    def is_held(self, request_id: str) -> bool:
        """Return whether a request waits for something beside its turn."""

    def prepare(self, resource: AdapterSpec) -> Future[str]:
        """Make ready what requests will need."""

    def discard(self, resource: AdapterSpec) -> None:
        """Forget what no request is to bring any more."""

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False when some blocks are in use."""

    def stats(self) -> EngineStats:
        """Return a snapshot."""

    def close(self) -> None:
        """Release everything; twice is fine."""


class EngineLoop:
    """Feeds the engine from the inbox, steps it while it has work, and sends its outputs."""

    def __init__(self, engine: ServableEngine, channel: Channel) -> None:
        self._engine = engine
        self._channel = channel
        self._is_frozen = False
        self._undecided: set[str] = set()  # held requests, neither accepted nor rejected yet

    def run(self) -> None:
        """Run until the socket ends. Raises what the engine's step raises."""
        inbox = self._channel.inbox
        self._engine.on_ready(inbox.wake)
        while (messages := inbox.take(is_waiting=not self._can_step)) is not None:
            for message in messages:
                self._handle(message)
            if self._can_step:
                self._step()

    @property
    def _can_step(self) -> bool:
        return self._engine.has_work and not self._is_frozen

    def _step(self) -> None:
        channel = self._channel
        channel.predicted_ms = self._engine.predicted_step_ms
        channel.step_started_s = time.monotonic()
        outputs = self._engine.step()
        channel.step_started_s = None
        if self._undecided:
            channel.send(self._verdicts(outputs))
        elif outputs:
            channel.send(protocol.Batch(outputs))

    def _verdicts(self, outputs: list[EngineOutput]) -> protocol.Batch:
        """Return the news of a step, and which of the held requests are decided upon by now."""
        batch = protocol.Batch(outputs=[], accepted=[], rejected=[])
        for output in outputs:
            if output.is_refused and output.request_id in self._undecided:
                error = protocol.error_to_wire(output.failure())
                batch.rejected.append((output.request_id, error))
                self._undecided.discard(output.request_id)
            else:
                batch.outputs.append(output)
        batch.accepted = [one for one in self._undecided if not self._engine.is_held(one)]
        self._undecided.difference_update(batch.accepted)
        return batch

    def _handle(self, message: protocol.ToEngine) -> None:
        match message:
            case protocol.Add():
                self._add(message)
            case protocol.Abort():
                self._engine.abort(message.request_ids)
                self._undecided.difference_update(message.request_ids)
            case protocol.Ping():
                self._channel.pong(message.ping_id, is_loop=True)
            case protocol.GetStats():
                self._channel.send(protocol.Stats(self._engine.stats()))
            case protocol.Prepare():
                self._prepare(message)
            case Control():
                self._channel.send(Controlled(message.number, self._control(message.action)))
            case protocol.Discard():
                self._engine.discard(message.adapter)

    def _control(self, action: Action) -> bool:
        if action is Action.RESET_CACHE:
            return self._engine.reset_prefix_cache()
        self._is_frozen = action is Action.FREEZE
        return True

    def _add(self, message: protocol.Add) -> None:
        batch = protocol.Batch(accepted=[], rejected=[])
        try:
            requests = protocol.requests_of(message)
        except RequestError as error:
            wire = protocol.error_to_wire(error)
            batch.rejected.extend((one.request_id, wire) for one in message.requests)
            requests = []
        for request in requests:
            try:
                self._engine.add(request)
            except (RequestError, RequestFailedError, UnsupportedError) as error:
                batch.rejected.append((request.request_id, protocol.error_to_wire(error)))
            else:
                if self._engine.is_held(request.request_id):
                    self._undecided.add(request.request_id)
                else:
                    batch.accepted.append(request.request_id)
        self._channel.send(batch)

    def _prepare(self, message: protocol.Prepare) -> None:
        def answer(error: BaseException | None) -> None:
            wire = None if error is None else protocol.error_to_wire(error)
            self._channel.send(protocol.Prepared(message.number, wire))

        try:
            digest = self._engine.prepare(message.adapter)
        except OctavoError as error:
            answer(error)
        else:
            digest.add_done_callback(
                lambda done: None if done.cancelled() else answer(done.exception())
            )


def serve(sock: socket.socket, build: Callable[[str], ServableEngine]) -> int:
    """Serve one engine over a connected socket until it ends. Returns the exit code.

    `build` makes the engine from the resolved configuration's JSON; a typed error that it raises
    is sent to the server.
    """
    channel = Channel(sock)
    first = channel.inbox.take(is_waiting=True)
    if not first or not isinstance(first[0], protocol.Start):
        return 1
    try:
        engine = build(first[0].config_json)
    except FAULTS as error:
        if not isinstance(error, OctavoError):
            _logger.exception("the engine could not start")
        exit_code = getattr(error, "exit_code", 1)
        channel.send(protocol.StartFailed(protocol.error_to_wire(error), exit_code))
        return exit_code
    for late in first[1:]:
        channel.inbox.put(late)
    gc.collect()
    gc.freeze()  # the model's objects stay for good: later collections need not look at them
    channel.is_started = True
    channel.send(protocol.Ready(engine.info))
    return _run(engine, channel)


def _run(engine: ServableEngine, channel: Channel) -> int:
    try:
        EngineLoop(engine, channel).run()
    except FAULTS as error:
        _logger.exception("the engine's loop failed")
        channel.send(protocol.Died(protocol.error_to_wire(death_by(error))))
        return 1
    finally:
        engine.close()
        channel.has_ended.set()
    return 0


def build_engine(config_json: str) -> ServableEngine:
    """Build the engine that a resolved configuration describes.

    Imports torch, and does so only here: the reader's thread must already watch the socket.
    """
    config = ResolvedConfig.from_json(config_json)
    configure_logging(config.server.log_level, config.server.log_format)
    module = importlib.import_module(_BUILD_MODULE)
    engine: ServableEngine = module.build_engine(config)
    return engine


def main(
    argv: Sequence[str] | None = None, build: Callable[[str], ServableEngine] = build_engine
) -> int:
    """Run the process. The server passes the number of an inherited, connected socket."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="inherited socket to the server")
    args = parser.parse_args(argv)
    sock = socket.socket(fileno=args.fd)
    sock.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM):
        # A signal to the whole group must not cut the answers that the server still drains: it
        # decides when this process ends, by closing the socket.
        signal.signal(number, signal.SIG_IGN)
    configure_logging("info", "text")  # until the configuration says otherwise
    let_threads_sleep()
    return serve(sock, build)


if __name__ == "__main__":
    sys.exit(main())
