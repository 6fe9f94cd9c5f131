"""Whose turn it is: every engine once a round, in alternating order.

Knows rounds. Does not know processes (`processes`) or what times come to (`results`).
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo_peers.processes import Limits, run_job
from octavo_peers.results import Results, Run
from octavo_peers.work import Job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo_peers.work import Case


@dataclass(frozen=True)
class Contender:
    """An engine, the Python it runs under, its model's path, and options of its own."""

    engine: str
    python: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """What is compared: the work that is the same for all, and how often.

    `left_out` are cases that were asked for and would take more memory than was allowed.
    """

    contenders: tuple[Contender, ...]
    cases: tuple[Case, ...]
    left_out: tuple[Case, ...]
    num_rounds: int
    num_threads: int
    seed: int
    max_id: int
    min_s: float
    limits: Limits

    def run(self) -> Results:
        """Run all rounds, with a line of progress for each process."""
        runs: list[Run] = []
        for round_number in range(self.num_rounds):
            for one in in_turn(self.contenders, round_number):
                _say(f"round {round_number + 1} of {self.num_rounds}: {one.engine} ...")
                run = run_job(one.python, self._job(one), round_number, self.limits)
                _say(f" {_outcome(run)}\n")
                runs.append(run)
        return Results(
            engines=tuple(one.engine for one in self.contenders),
            cases=self.cases,
            runs=tuple(runs),
            settings=self._settings(),
            machine=machine_facts(),
        )

    def _job(self, contender: Contender) -> Job:
        return Job(
            engine=contender.engine,
            model=contender.model,
            cases=self.cases,
            num_threads=self.num_threads,
            options=dict(contender.options),
            seed=self.seed,
            max_id=self.max_id,
            min_s=self.min_s,
        )

    def _settings(self) -> dict[str, Any]:
        plain = ("num_rounds", "num_threads", "seed", "max_id", "min_s")
        return {
            **{name: getattr(self, name) for name in plain},
            "left_out": [vars(case) for case in self.left_out],
            "contenders": [{**vars(one), "options": dict(one.options)} for one in self.contenders],
        }


def in_turn(contenders: Sequence[Contender], round_number: int) -> list[Contender]:
    """Return who runs in which order: forwards and backwards by turns.

    So a drift of the machine's speed favours nobody.
    """
    return list(reversed(contenders)) if round_number % 2 else list(contenders)


def machine_facts() -> dict[str, Any]:
    """Return what a reader must know of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
    }


def _outcome(run: Run) -> str:
    if run.error or run.start_s is None:
        return f"failed: {run.error}"
    failed = sum(times.error is not None for times in run.times)
    return f"started in {run.start_s:.1f} s" + (f", {failed} cases failed" if failed else "")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
