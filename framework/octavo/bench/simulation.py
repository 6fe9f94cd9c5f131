"""Plays requests through an engine in virtual time, or in real time, and says how they fared.

Knows arrivals, the engine and a clock. Does not know what steps cost, nor how to print.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from octavo.bench.offline import fixed_length
from octavo.engine.messages import EngineRequest
from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from octavo.bench.arrivals import Arrival
    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineOutput, EngineStats
    from octavo.interfaces.executor import Clock

#: times between tokens are kept of so many requests, spread evenly over all of them
_MOST_WATCHED: Final = 1024


class RealClock:
    """The system's time, which passes by itself."""

    def __call__(self) -> float:
        """Return the time, as engines read it."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(max(0.0, seconds))


@dataclass(slots=True)
class Fate:
    """What became of one request, in seconds of the engine's clock.

    `gaps_s` are the times between its tokens, if they are kept; `user` whose it was.
    """

    arrival_s: float
    num_prompt_tokens: int
    first_s: float | None = None
    end_s: float | None = None
    num_output_tokens: int = 0
    finish_reason: str | None = None
    user: str | None = None
    last_s: float = 0.0
    gaps_s: list[float] | None = None

    def take(self, output: EngineOutput, now_s: float) -> None:
        """Note news of the request."""
        if output.token_ids:
            self.num_output_tokens += len(output.token_ids)
            if self.first_s is None:
                self.first_s = self.last_s = now_s
            elif self.gaps_s is not None:
                self.gaps_s.append(now_s - self.last_s)
                self.last_s = now_s
        if output.finish_reason is not None:
            self.end_s, self.finish_reason = now_s, output.finish_reason


@dataclass(slots=True)
class Simulation:
    """What came of a workload. The lists have an entry for each step, of the moment after it.

    `times_s` count from the beginning; `kv_usage` are shares of the blocks in use.
    """

    fates: list[Fate] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    num_running: list[int] = field(default_factory=list)
    num_waiting: list[int] = field(default_factory=list)
    kv_usage: list[float] = field(default_factory=list)
    stats: EngineStats | None = None
    virtual_s: float = 0.0
    real_s: float = 0.0

    def ttft_ms(self, user: str | None = None) -> list[float]:
        """Return the milliseconds from each arrival to the first token, of one user or all."""
        return [
            1000 * (one.first_s - one.arrival_s)
            for one in self.fates
            if one.first_s is not None and user in {None, one.user}
        ]

    def tpot_ms(self) -> list[float]:
        """Return the milliseconds between tokens after the first, the mean of each request."""
        return [
            1000 * (one.end_s - one.first_s) / (one.num_output_tokens - 1)
            for one in self.fates
            if one.first_s is not None and one.end_s is not None and one.num_output_tokens > 1
        ]

    def itl_ms(self) -> list[float]:
        """Return the milliseconds between one token and the next."""
        return [1000 * gap_s for one in self.fates for gap_s in one.gaps_s or ()]

    def latency_ms(self) -> list[float]:
        """Return the milliseconds from each arrival to the last token."""
        return [1000 * (one.end_s - one.arrival_s) for one in self.fates if one.end_s is not None]

    @property
    def users(self) -> list[str]:
        """Return whose the requests were."""
        return sorted({one.user for one in self.fates if one.user is not None})


def simulate(engine: Engine, clock: Clock, arrivals: Sequence[Arrival]) -> Simulation:
    """Let all requests arrive at their times, and step the engine until the last has ended.

    Where the clock is the system's (`RealClock`), that takes as long as it takes.
    """
    result = Simulation()
    fates: dict[str, Fate] = {}
    every = -(-len(arrivals) // _MOST_WATCHED)
    coming = iter(enumerate(arrivals))
    following = next(coming, None)
    core, before = engine.core, engine.stats()
    start_s, started_s = clock(), time.perf_counter()
    while following is not None or engine.has_work:
        now_s = clock()
        while following is not None and start_s + following[1].arrival_s <= now_s:
            number, arrival = following
            fate = _add(engine, f"r{number}", arrival, start_s, result)
            if fate is not None:
                fates[f"r{number}"] = fate
                fate.gaps_s = None if number % every else []
            following = next(coming, None)
        if not engine.has_work:
            if following is not None:
                clock.sleep(start_s + following[1].arrival_s - clock())
            continue
        outputs, now_s = engine.step(), clock()
        for output in outputs:
            fates[output.request_id].take(output, now_s)
        counts = core.allocator.counts()
        result.times_s.append(now_s - start_s)
        result.num_running.append(len(core.running))
        result.num_waiting.append(len(core.waiting))
        result.kv_usage.append(counts.used / max(1, counts.total))
    result.fates = list(fates.values())
    result.stats = _since(before, engine.stats())
    result.virtual_s, result.real_s = clock() - start_s, time.perf_counter() - started_s
    return result


def _since(before: EngineStats, after: EngineStats) -> EngineStats:
    """Return what was counted between two snapshots, as far as reports have it."""
    names = ("preemptions", "prefix_queries_tokens", "prefix_hits_tokens")
    return replace(after, **{name: getattr(after, name) - getattr(before, name) for name in names})


def _add(
    engine: Engine, request_id: str, arrival: Arrival, start_s: float, result: Simulation
) -> Fate | None:
    """Queue a request, or note why it cannot run."""
    params = fixed_length(arrival.output_tokens)
    params.extra_args = arrival.extra_args
    request = EngineRequest(
        request_id,
        arrival.prompt_token_ids,
        params,
        arrival.output_tokens,
        0,
        start_s + arrival.arrival_s,
        priority=arrival.priority,
        metadata=arrival.metadata,
    )
    try:
        engine.add(request)
    except RequestError as error:
        result.refused.append(error.headline)
        return None
    user = arrival.metadata.get("user")
    return Fate(request.arrival_s, len(arrival.prompt_token_ids), user=user)


def rates(simulation: Simulation) -> Iterator[tuple[str, float]]:
    """Yield throughputs over the whole time: requests, output tokens and all tokens a second."""
    elapsed_s = max(simulation.virtual_s, 1e-9)
    num_output = sum(one.num_output_tokens for one in simulation.fates)
    num_prompt = sum(one.num_prompt_tokens for one in simulation.fates)
    yield "requests/s", len(simulation.fates) / elapsed_s
    yield "output tok/s", num_output / elapsed_s
    yield "total tok/s", (num_output + num_prompt) / elapsed_s
