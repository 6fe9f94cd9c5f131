"""What was measured, and what it comes to: one rate a round, medians, ratios.

Knows times, rates and the JSON they are kept in. Does not know processes or how to print.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from octavo_peers.engines import OCTAVO
from octavo_peers.work import Case

if TYPE_CHECKING:
    from collections.abc import Iterable

PHASES: Final = ("prefill", "decode")


@dataclass(frozen=True)
class CaseTimes:
    """What one process measured of a case: pairs of seconds, for first tokens and for all.

    `first_ids` are the first token of each sequence, of equal prompts for every engine. Where
    `error` is set there is nothing else.
    """

    case: Case
    pairs: tuple[tuple[float, float], ...] = ()
    first_ids: tuple[int, ...] = ()
    error: str | None = None

    def rate(self, phase: str) -> float | None:
        """Return the median rate of the pairs; None where none has one."""
        if phase == "prefill":
            rates: list[float | None] = [self.case.prefill_rate(first) for first, _ in self.pairs]
        else:
            rates = [self.case.decode_rate(first, total) for first, total in self.pairs]
        known = [rate for rate in rates if rate is not None]
        return median(known) if known else None


@dataclass(frozen=True)
class Run:
    """One process: an engine in one round. `error` says why it ended early."""

    engine: str
    round_number: int
    version: str | None = None
    start_s: float | None = None
    times: tuple[CaseTimes, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Spread:
    """The median of one value a round, and the least and the greatest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the values that are known; None where none is."""
        known = [value for value in values if value is not None]
        return cls(median(known), min(known), max(known)) if known else None

    @property
    def band(self) -> float:
        """Return how far apart least and greatest are, as a share of the median."""
        return (self.high - self.low) / self.median


@dataclass(frozen=True)
class Results:
    """All runs of one comparison. `settings` and `machine` say what and where, for readers."""

    engines: tuple[str, ...]
    cases: tuple[Case, ...]
    runs: tuple[Run, ...]
    settings: dict[str, Any]
    machine: dict[str, Any]

    def rate(self, engine: str, case: Case, phase: str) -> Spread | None:
        """Return tokens a second of all sequences together."""
        return Spread.of(times.rate(phase) for times in self._times(engine, case))

    def ratio(self, engine: str, case: Case, phase: str) -> float | None:
        """Return octavo's median rate over an engine's."""
        ours, theirs = self.rate(OCTAVO, case, phase), self.rate(engine, case, phase)
        return ours.median / theirs.median if ours and theirs else None

    def start_s(self, engine: str) -> Spread | None:
        """Return seconds from starting the process to the first token."""
        return Spread.of(run.start_s for run in self._runs(engine))

    def widest_band(self, engine: str) -> float | None:
        """Return the band of the engine's least steady rate; None before a second round."""
        spreads = [self.rate(engine, case, phase) for case in self.cases for phase in PHASES]
        bands = [spread.band for spread in spreads if spread]
        num_rounds = len({run.round_number for run in self.runs})
        return max(bands) if bands and num_rounds > 1 else None

    def same_first_ids(self, engine: str) -> float | None:
        """Return the share of sequences whose first token is octavo's: the same weights?"""
        pairs = [
            pair
            for case in self.cases
            for pair in zip(self._first_ids(OCTAVO, case), self._first_ids(engine, case))  # noqa: B905 - one may have failed
        ]
        return sum(ours == theirs for ours, theirs in pairs) / len(pairs) if pairs else None

    def errors(self) -> list[str]:
        """Return a line for each failure, once for all rounds."""
        lines = [f"{run.engine}: {run.error}" for run in self.runs if run.error]
        lines += [
            f"{run.engine}, {times.case.num_prompt_tokens} in x{times.case.num_seqs}: {times.error}"
            for run in self.runs
            for times in run.times
            if times.error
        ]
        return list(dict.fromkeys(lines))

    def summary(self) -> list[dict[str, Any]]:
        """Return a row for each case, phase and engine that was measured."""
        return [
            {
                **asdict(case),
                "phase": phase,
                "engine": engine,
                **asdict(spread),
                "octavo_over_engine": self.ratio(engine, case, phase),
            }
            for case in self.cases
            for phase in PHASES
            for engine in self.engines
            if (spread := self.rate(engine, case, phase))
        ]

    def to_json(self) -> dict[str, Any]:
        """Return all as JSON has it, with the summary for those who read no code."""
        return {**asdict(self), "summary": self.summary()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Results:
        """Return what `to_json` gave. Raises KeyError or TypeError for anything else."""
        return cls(
            engines=tuple(values["engines"]),
            cases=tuple(Case(**case) for case in values["cases"]),
            runs=tuple(_run(run) for run in values["runs"]),
            settings=values["settings"],
            machine=values["machine"],
        )

    def _runs(self, engine: str) -> list[Run]:
        return [run for run in self.runs if run.engine == engine]

    def _times(self, engine: str, case: Case) -> list[CaseTimes]:
        return [times for run in self._runs(engine) for times in run.times if times.case == case]

    def _first_ids(self, engine: str, case: Case) -> tuple[int, ...]:
        return next((one.first_ids for one in self._times(engine, case) if one.first_ids), ())


def case_times(values: dict[str, Any]) -> CaseTimes:
    """Return what JSON says of a case."""
    return CaseTimes(
        case=Case(**values["case"]),
        pairs=tuple((first_s, total_s) for first_s, total_s in values.get("pairs", ())),
        first_ids=tuple(values.get("first_ids", ())),
        error=values.get("error"),
    )


def _run(values: dict[str, Any]) -> Run:
    return Run(**{**values, "times": tuple(case_times(times) for times in values["times"])})
