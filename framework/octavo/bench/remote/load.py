"""Sends a workload to a server at the times it is to arrive, and keeps what became of it.

Knows requests, times and the client's own CPU. Does not know how to print.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from octavo.bench.summaries import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from octavo.bench.remote.connection import Connections
    from octavo.bench.remote.outcome import Outcome

#: points of what is shown over time: rates are means, and uneven when there are many
_NUM_COUNTS, _NUM_RATES = 120, 30
_LEAST_S = 1e-9

#: what may be promised of a request, and how it is measured; `itl` is its longest gap
SLOS: Mapping[str, Callable[[Outcome], float]] = {
    "ttft": lambda one: one.ttft_ms,
    "tpot": lambda one: one.tpot_ms,
    "itl": lambda one: max(one.gaps_ms, default=0.0),
    "e2e": lambda one: one.e2e_ms,
}


@dataclass(frozen=True, slots=True)
class Load:
    """Bodies to be sent, each so many seconds after the start; of `max_concurrency` at once.

    A request that is held back by that counts from when it is sent.
    """

    path: str
    bodies: Sequence[bytes]
    arrivals_s: Sequence[float]
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What became of a load. `client_cpu_s` is what this process computed meanwhile."""

    outcomes: Sequence[Outcome]
    started_s: float
    elapsed_s: float
    client_cpu_s: float

    @property
    def good(self) -> list[Outcome]:
        """Return the requests that were answered."""
        return [one for one in self.outcomes if one.error is None]

    @property
    def num_chunks(self) -> int:
        """Return how many pieces of text came."""
        return sum(len(one.chunk_times_s) for one in self.outcomes)

    @property
    def errors(self) -> Counter[str]:
        """Return how many requests failed, by kind."""
        return Counter(one.error for one in self.outcomes if one.error is not None)

    def num_within(self, slos: Mapping[str, float]) -> int:
        """Return how many requests kept all promises, in milliseconds by name."""
        return sum(
            all(SLOS[name](one) <= limit for name, limit in slos.items()) for one in self.good
        )

    @property
    def most_in_flight(self) -> int:
        """Return how many requests were on their way at once, at most."""
        return max(accumulate(change for _, change in self._changes()), default=0)

    def in_flight(self) -> tuple[list[float], list[float]]:
        """Return the middles of equal pieces of the time, and the most on their way in each."""
        most, now, at = [0.0] * _NUM_COUNTS, 0, 0
        for time_s, change in self._changes():
            place = self._piece_of(time_s, _NUM_COUNTS)
            for passed in range(at, place + 1):
                most[passed] = max(most[passed], now)
            now, at = now + change, place
            most[at] = max(most[at], now)
        return self._middles_s(_NUM_COUNTS), most

    def chunks_per_s(self) -> tuple[list[float], list[float]]:
        """Return the middles of equal pieces of the time, and the rate of chunks in each."""
        times_s = [time_s for one in self.outcomes for time_s in one.chunk_times_s]
        counts = Counter(self._piece_of(time_s, _NUM_RATES) for time_s in times_s)
        piece_s = max(self.elapsed_s, _LEAST_S) / _NUM_RATES
        return self._middles_s(_NUM_RATES), [counts[at] / piece_s for at in range(_NUM_RATES)]

    def _changes(self) -> list[tuple[float, int]]:
        """Return when requests were sent (1) and ended (-1), in order."""
        sent = [(one.sent_s, 1) for one in self.outcomes]
        return sorted(sent + [(one.end_s, -1) for one in self.outcomes])

    def _piece_of(self, time_s: float, num: int) -> int:
        share = (time_s - self.started_s) / max(self.elapsed_s, _LEAST_S)
        return max(0, min(num - 1, int(share * num)))

    def _middles_s(self, num: int) -> list[float]:
        return [(at + 0.5) * self.elapsed_s / num for at in range(num)]

    def report(self, slos: Mapping[str, float]) -> dict[str, Any]:
        """Return all numbers; times in milliseconds unless the name says otherwise."""
        good, elapsed_s = self.good, max(self.elapsed_s, _LEAST_S)
        num_output = sum(one.num_output_tokens for one in good)
        num_prompt = sum(one.num_prompt_tokens or 0 for one in good)
        report: dict[str, Any] = {
            "requests": len(self.outcomes),
            "answered": len(good),
            "failed": len(self.outcomes) - len(good),
            "errors": dict(self.errors),
            "error_examples": {one.error: one.detail for one in self.outcomes if one.error},
            "elapsed_s": round(self.elapsed_s, 3),
            "requests_per_s": round(len(good) / elapsed_s, 3),
            "output_tokens_per_s": round(num_output / elapsed_s, 1),
            "total_tokens_per_s": round((num_output + num_prompt) / elapsed_s, 1),
            "prompt_tokens": num_prompt,
            "output_tokens": num_output,
            "chunks": self.num_chunks,
            "has_usage": all(one.num_usage_tokens is not None for one in good),
            "most_in_flight": self.most_in_flight,
            "client_cpu_share": round(self.client_cpu_s / elapsed_s, 4),
            "client_us_per_chunk": round(self.client_cpu_s * 1e6 / max(1, self.num_chunks), 1),
            **{name: _rounded(values) for name, values in self.times_ms().items()},
        }
        if slos:
            report["within_slo"] = self.num_within(slos)
            report["goodput_per_s"] = round(report["within_slo"] / elapsed_s, 3)
        return report

    def times_ms(self) -> dict[str, list[float]]:
        """Return what is shown of times: of requests, and `itl` of all gaps between pieces."""
        good = self.good
        return {
            "ttft_ms": [one.ttft_ms for one in good],
            "itl_ms": [gap for one in good for gap in one.gaps_ms],
            "tpot_ms": [one.tpot_ms for one in good],
            "e2e_ms": [one.e2e_ms for one in good],
        }


def _rounded(values: list[float]) -> dict[str, float]:
    numbers = {**summary(values), "max": max(values)} if values else {}
    return {name: round(value, 2) for name, value in numbers.items()}


async def play(
    connections: Connections, load: Load, on_done: Callable[[int, int], None]
) -> LoadRun:
    """Send a load and wait for its end. `on_done` gets how many have ended, and how many failed."""
    limit = (
        nullcontext() if load.max_concurrency is None else asyncio.Semaphore(load.max_concurrency)
    )
    counts = [0, 0]

    async def send(body: bytes) -> Outcome:
        async with limit:
            outcome = (await connections.send("POST", load.path, body)).outcome
        counts[0] += 1
        counts[1] += outcome.error is not None
        on_done(*counts)
        return outcome

    cpu_s, started_s = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for body, arrival_s in zip(load.bodies, load.arrivals_s, strict=True):
            wait_s = started_s + arrival_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            tasks.append(group.create_task(send(body)))
    outcomes = [task.result() for task in tasks]
    end_s = max((one.end_s for one in outcomes), default=started_s)
    return LoadRun(outcomes, started_s, end_s - started_s, time.process_time() - cpu_s)
