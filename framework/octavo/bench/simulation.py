"""Plays a workload through an engine in virtual time, and says how its requests fared.

Knows arrivals, the engine and its clock. Does not know what steps cost, nor how to print.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any, Final

from octavo.bench.offline import PromptMaker, fixed_length
from octavo.engine.messages import EngineRequest
from octavo.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineOutput, EngineStats
    from octavo.interfaces.executor import Clock

PERCENTILES: Final = (50, 90, 99)
_TRACE_KEYS: Final = (
    "arrival_s", "prompt_tokens", "prompt_token_ids", "output_tokens", "priority"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request to come: when, with which prompt, and how many tokens it generates."""

    arrival_s: float
    prompt_token_ids: list[int]
    output_tokens: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload to be made up. `rate` in requests a second, None for all at once.

    Lengths are (prompt, output), one pair for each request; the first `num_shared` tokens are the
    same in all prompts.
    """

    lengths: Sequence[tuple[int, int]]
    rate: float | None
    vocab_size: int
    num_shared: int = 0
    seed: int = 0


@dataclass(slots=True)
class Fate:
    """What became of one request, in seconds of the engine's clock."""

    arrival_s: float
    num_prompt_tokens: int
    first_s: float | None = None
    end_s: float | None = None
    num_output_tokens: int = 0
    finish_reason: str | None = None

    def take(self, output: EngineOutput, now_s: float) -> None:
        """Note news of the request."""
        if output.token_ids:
            self.num_output_tokens += len(output.token_ids)
            if self.first_s is None:
                self.first_s = now_s
        if output.finish_reason is not None:
            self.end_s, self.finish_reason = now_s, output.finish_reason


@dataclass(slots=True)
class Simulation:
    """What came of a workload. `kv_usage` has the used share of blocks after each step."""

    fates: list[Fate] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    kv_usage: list[float] = field(default_factory=list)
    stats: EngineStats | None = None
    virtual_s: float = 0.0
    real_s: float = 0.0

    def ttft_ms(self) -> list[float]:
        """Return the milliseconds from each arrival to the first token."""
        return [
            1000 * (one.first_s - one.arrival_s) for one in self.fates if one.first_s is not None
        ]

    def tpot_ms(self) -> list[float]:
        """Return the milliseconds between tokens after the first, for each request."""
        return [
            1000 * (one.end_s - one.first_s) / (one.num_output_tokens - 1)
            for one in self.fates
            if one.first_s is not None and one.end_s is not None and one.num_output_tokens > 1
        ]

    def latency_ms(self) -> list[float]:
        """Return the milliseconds from each arrival to the last token."""
        return [1000 * (one.end_s - one.arrival_s) for one in self.fates if one.end_s is not None]


def make_arrivals(workload: Workload) -> list[Arrival]:
    """Return random prompts that arrive by a Poisson process; the same every time."""
    prompts = PromptMaker(workload.vocab_size, workload.seed)
    shared = prompts.one(workload.num_shared)["prompt_token_ids"]
    draw = random.Random(workload.seed)  # noqa: S311 - a workload, not a secret
    arrivals, now_s = [], 0.0
    for num_prompt, num_output in workload.lengths:
        own = prompts.one(max(1, num_prompt - len(shared)))["prompt_token_ids"]
        arrivals.append(Arrival(now_s, shared + own, num_output))
        now_s += draw.expovariate(workload.rate) if workload.rate else 0.0
    return arrivals


def read_trace(path: Path, vocab_size: int) -> list[Arrival]:
    """Read arrivals, one JSON object a line. Raises ConfigError naming the line.

    `arrival_s`, `output_tokens`, and either `prompt_tokens` (their number) or `prompt_token_ids`;
    `priority` if need be.
    """
    prompts = PromptMaker(vocab_size)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the trace '{path}'", str(error)) from error
    arrivals = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            arrivals.append(_arrival_of(json.loads(line), prompts))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"line {number} of the trace '{path}' is no request",
                f"{type(error).__name__}: {error}",
                f"keys: {', '.join(_TRACE_KEYS)}",
            ) from error
    return sorted(arrivals, key=lambda one: one.arrival_s)


def _arrival_of(values: Any, prompts: PromptMaker) -> Arrival:
    unknown = sorted(set(values) - set(_TRACE_KEYS))
    if unknown:
        raise ValueError(f"unknown keys {', '.join(unknown)}")
    ids = values.get("prompt_token_ids")
    if ids is None:
        ids = prompts.one(int(values["prompt_tokens"]))["prompt_token_ids"]
    arrival_s, num_output = float(values["arrival_s"]), int(values["output_tokens"])
    if not ids or num_output < 1 or not 0 <= arrival_s < float("inf"):
        raise ValueError("a request has at least one token each way, and arrives at 0 s or later")
    return Arrival(arrival_s, [int(one) for one in ids], num_output, int(values.get("priority", 0)))


def simulate(engine: Engine, clock: Clock, arrivals: Sequence[Arrival]) -> Simulation:
    """Let all requests arrive at their times, and step the engine until the last has ended."""
    result = Simulation()
    fates: dict[str, Fate] = {}
    coming = iter(enumerate(arrivals))
    following = next(coming, None)
    started_s = time.perf_counter()
    while following is not None or engine.has_work:
        while following is not None and following[1].arrival_s <= clock():
            number, arrival = following
            _add(engine, f"r{number}", arrival, fates, result)
            following = next(coming, None)
        if not engine.has_work:
            if following is not None:
                clock.sleep(following[1].arrival_s - clock())
            continue
        outputs, now_s = engine.step(), clock()
        for output in outputs:
            fates[output.request_id].take(output, now_s)
        counts = engine.core.allocator.counts()
        result.kv_usage.append(counts.used / max(1, counts.total))
    result.fates = list(fates.values())
    result.stats = engine.stats()
    result.virtual_s, result.real_s = clock(), time.perf_counter() - started_s
    return result


def _add(
    engine: Engine, request_id: str, arrival: Arrival, fates: dict[str, Fate], result: Simulation
) -> None:
    """Queue a request, or note why it cannot run."""
    request = EngineRequest(
        request_id,
        arrival.prompt_token_ids,
        fixed_length(arrival.output_tokens),
        arrival.output_tokens,
        0,
        arrival.arrival_s,
        priority=arrival.priority,
    )
    try:
        engine.add(request)
    except RequestError as error:
        result.refused.append(error.headline)
        return
    fates[request_id] = Fate(arrival.arrival_s, len(arrival.prompt_token_ids))


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the percentiles of some values; empty for none."""
    if not values:
        return {}
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    return {"mean": fmean(values), **{f"p{one}": cuts[one - 1] for one in PERCENTILES}}


def rates(simulation: Simulation) -> Iterator[tuple[str, float]]:
    """Yield throughputs over the whole time: requests, output tokens and all tokens a second."""
    elapsed_s = max(simulation.virtual_s, 1e-9)
    num_output = sum(one.num_output_tokens for one in simulation.fates)
    num_prompt = sum(one.num_prompt_tokens for one in simulation.fates)
    yield "requests/s", len(simulation.fates) / elapsed_s
    yield "output tok/s", num_output / elapsed_s
    yield "total tok/s", (num_output + num_prompt) / elapsed_s
