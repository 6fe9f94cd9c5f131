"""One rank: loads its share of a model, and carries out what it is told.

Every rank is sent the same plans, and samples the same tokens from the same logits.

Knows messages and a runner. Does not know the engine, policies, text, or its process.
"""

from __future__ import annotations

import gc
import logging
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from octavo.config.resolved import ResolvedConfig
from octavo.execution.load import facts_of, load_runner
from octavo.interfaces.executor import StepCosts
from octavo.serving.logs import configure_logging
from octavo.serving.protocol import error_to_wire
from octavo_plugins.executors import rank_wire as wire
from octavo_plugins.executors.gloo import GlooCollective, PeerLostError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from octavo.engine.plan import StepPlan, StepResult
    from octavo.execution.runner import ModelRunner
    from octavo.interfaces.platform import Platform
    from octavo_plugins.executors.rank_process import Channel

logger = logging.getLogger("octavo.rank")

#: until costs are measured, from outside
_NO_COSTS = StepCosts.linear(1.0, 1.0)


class Rank:
    """A loaded share of a model, and what it does with each message."""

    def __init__(self, runner: ModelRunner, channel: Channel, rank: int) -> None:
        self._runner = runner
        self._channel = channel
        self._rank = rank

    def run(self) -> None:
        """Carry messages out until the process ends. Raises what a step raises."""
        while True:
            match self._channel.messages.get():
                case wire.Run() as message:
                    self._step(wire.plan_of(message))
                case wire.Rehearse(num_tokens, context):
                    self._runner.run_dummy(num_tokens, context)
                    self._channel.send(wire.Rehearsed())
                case wire.Prepare() as message:
                    future = self._runner.resources.prepare(wire.resource_of(message))
                    future.add_done_callback(partial(self._send_prepared, message.number))
                case wire.Discard() as message:
                    self._runner.resources.discard(wire.resource_of(message))

    def _step(self, plan: StepPlan) -> None:
        result = self._runner.run(plan)
        whole = result if self._rank == 0 else None
        self._channel.send(wire.Stepped(check_of(result), whole))

    def _send_prepared(self, number: int, future: Future[str]) -> None:
        error = future.exception()
        if error is None:
            self._channel.send(wire.Prepared(number, future.result()))
        else:
            self._channel.send(wire.Prepared(number, error=error_to_wire(error)))


def check_of(result: StepResult) -> int:
    """Return a sum over all that a step accepted and guessed."""
    return zlib.crc32(repr((result.token_ids, sorted(result.drafts.items()))).encode())


def load(message: wire.Load) -> ModelRunner:
    """Meet the other ranks, and load this one's share. Raises the typed errors of loading."""
    config = ResolvedConfig.from_json(message.config_json)
    server = config.server
    # what one rank says of the model, all would say
    configure_logging(server.log_level if message.rank == 0 else "error", server.log_format)
    platform: Platform = config.build("platform")
    num_threads = config.engine.threads or platform.num_threads()
    torch.set_num_threads(max(1, num_threads // message.size))
    collective = None
    if message.size > 1:
        collective = GlooCollective(message.rank, message.size, Path(message.folder))
    return load_runner(config, platform, collective=collective)


def serve(channel: Channel) -> int:
    """Serve one rank over its channel until it ends. Returns the exit code."""
    first = channel.messages.get()
    if not isinstance(first, wire.Load):
        return 1
    try:
        runner = load(first)
    except PeerLostError as error:
        channel.send(wire.Failed(str(error), is_peer_lost=True))
        return 1
    except Exception as error:  # noqa: BLE001 - it is told to whoever wanted the model
        channel.send(wire.Refused(error_to_wire(error)))
        return 1
    gc.collect()
    gc.freeze()  # the model's objects stay for good
    limits = wire.Limits(runner.shape.max_num_tokens, runner.shape.max_model_len)
    channel.send(wire.Loaded(limits, facts_of(runner, _NO_COSTS)))
    try:
        Rank(runner, channel, first.rank).run()
    except PeerLostError as error:
        channel.send(wire.Failed(str(error), is_peer_lost=True))
    except Exception as error:
        logger.exception("a step failed")
        channel.send(wire.Failed(f"{type(error).__name__}: {error}", is_peer_lost=False))
    return 1
