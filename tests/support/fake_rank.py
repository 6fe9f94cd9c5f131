"""A rank without a model: `python fake_rank.py --fd N`, which does what its config says.

The config is JSON: by rank, what becomes of a message of that kind. Anything else is answered as
a good rank answers it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from octavo.engine.plan import StepResult
from octavo.errors import GrammarError, ModelLoadError
from octavo.interfaces.executor import ExecutorFacts, StepCosts
from octavo.serving.framing import frame
from octavo.serving.protocol import error_to_wire
from octavo_plugins.executors import rank_process
from octavo_plugins.executors import rank_wire as wire

FACTS = ExecutorFacts(8, 64, 100, StepCosts.linear(1.0, 1.0))


class FakeWorker:
    """Stands in for the module that a rank's process runs."""

    @staticmethod
    def serve(channel: rank_process.Channel) -> int:
        first = channel.messages.get()
        script: dict[str, Any] = json.loads(first.config_json).get(str(first.rank), {})
        message: Any = first
        while True:
            kind = type(message).__name__.lower()
            action = script.get(kind)
            if isinstance(action, int):
                return action
            if action == "refuse":
                channel.send(wire.Refused(error_to_wire(ModelLoadError("bad tensor", "a fact"))))
                return 1
            if action == "lose-peer":
                time.sleep(0.05)
                channel.send(wire.Failed("connection closed", is_peer_lost=True))
                return 1
            if action == "fail":
                channel.send(wire.Failed("ValueError: oh", is_peer_lost=False))
                return 1
            if action == "garbage":
                channel._sock.sendall(frame(b"\xc1"))
            elif action != "silent":
                answer(channel, message, first.rank, action)
            message = channel.messages.get()


def answer(channel: rank_process.Channel, message: Any, rank: int, action: Any) -> None:
    match message:
        case wire.Load():
            channel.send(wire.Loaded(wire.Limits(32, 64), FACTS))
        case wire.Rehearse():
            channel.send(wire.Rehearsed())
        case wire.Run(plan):
            tokens = [(7,) for _ in plan.advances]
            result = StepResult(plan.step, tokens) if rank == 0 else None
            channel.send(wire.Stepped(rank if action == "differ" else 0, result))
        case wire.Prepare(number) if action == "reject":
            channel.send(wire.Prepared(number, error=error_to_wire(GrammarError("no such form"))))
        case wire.Prepare(number):
            channel.send(wire.Prepared(number, "digest"))


if __name__ == "__main__":
    rank_process.importlib.import_module = lambda name: FakeWorker
    sys.exit(rank_process.main())
