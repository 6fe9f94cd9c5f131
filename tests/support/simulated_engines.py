"""Engines in virtual time for tests of policies: what is asked of them, and who goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.engine.messages import EngineRequest
from octavo.sampling_params import SamplingParams
from octavo_plugins.executors.simulated import SimulatedExecutor, SimulatedOptions

if TYPE_CHECKING:
    from octavo.engine.engine import Engine
    from octavo.engine.plan import StepPlan

#: a step takes 10 ms and 1 ms for each token
COSTS = {"fixed-ms": 10, "per-token-ms": 1, "vocab-size": 1000}
SIZES = {"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 64}


class WatchedExecutor(SimulatedExecutor):
    """Notes who started, and each request's shares: its id, the first position, how many tokens."""

    def __init__(self, options: SimulatedOptions) -> None:
        super().__init__(options)
        self.started: list[str] = []
        self.shares: list[tuple[str, int, int]] = []
        self._owners: dict[int, str] = {}

    def submit(self, plan: StepPlan) -> Any:
        for start in plan.starts:
            self._owners[start.row] = start.request_id
            self.started.append(start.request_id)
        for one in plan.advances:
            self.shares.append((self._owners[one.row], one.start, one.num_tokens))
        return super().submit(plan)


def make_engine(
    scheduler: str | dict[str, Any] = "fcfs", *, num_blocks: int = 200, **settings: Any
) -> Engine:
    """Return an engine; options of a policy are given as `{"use": name, option: value}`."""
    options = SimulatedOptions(**{**COSTS, "num-blocks": num_blocks})
    sizes = {**SIZES, "scheduler": scheduler, **settings}
    return build_engine(resolve(overrides=sizes), WatchedExecutor(options))


def request(
    name: str, prompt: int | list[int], max_tokens: int = 8, **fields: Any
) -> EngineRequest:
    """Return a request whose prompt is given, or made up by its length and the name.

    `user` and `session_id` are metadata; `extra` is what components declare.
    """
    ids = prompt if isinstance(prompt, list) else made_up(name, prompt)
    params = SamplingParams(
        max_tokens=max_tokens, temperature=0.0, extra_args=fields.pop("extra", None)
    )
    metadata = {key: fields.pop(key) for key in ("user", "session_id") if key in fields}
    fields.setdefault("arrival_s", 0.0)
    return EngineRequest(name, ids, params, max_tokens, 0, metadata=metadata, **fields)


def made_up(name: str, length: int) -> list[int]:
    """Return a prompt that shares no beginning with those of other names."""
    first = sum(ord(letter) * 31**place for place, letter in enumerate(name))
    return [(first + 7 * place) % 900 for place in range(length)]


def run(engine: Engine, max_steps: int = 5000) -> None:
    """Step to the end, whatever comes."""
    for _ in range(max_steps):
        if not engine.has_work:
            return
        engine.step()
    raise AssertionError("the engine did not come to an end")


def started(engine: Engine) -> list[str]:
    """Return the ids of requests in the order in which they began to run."""
    return engine.executor.started


def order_of(engine: Engine, requests: list[EngineRequest]) -> list[str]:
    """Add all at once behind one that takes the seats, run, and return the order of starts."""
    for one in requests:
        engine.add(one)
    run(engine)
    return started(engine)
