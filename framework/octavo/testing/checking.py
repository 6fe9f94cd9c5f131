"""Tries all invariants of a component without pytest, and reports what became of each.

Knows invariants. Does not know terminals or JSON.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from octavo.errors import UnsupportedError
from octavo.testing.every import every_invariant
from octavo.testing.invariants import PromiseBroken
from octavo.testing.kits import promises_of
from octavo.testing.quiet import without_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.testing.invariants import Invariant
    from octavo.testing.subjects import Subject


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one invariant.

    `text` is the counter-example of one that failed, or what the component said when it refused
    what it declares unsupported.
    """

    invariant: Invariant
    state: Literal["passed", "failed", "refused"]
    took_s: float
    text: str = ""


def invariants_of(subject: Subject) -> list[Invariant]:
    """Return what a component promises."""
    promises = promises_of(subject.kind)
    return [*every_invariant(promises), *promises]


def outcomes(subject: Subject, invariants: Iterable[Invariant]) -> Iterator[Outcome]:
    """Try these invariants in turn, and close the subject.

    Raises UnsupportedError when it cannot run on this machine.
    """
    reasons = subject.reasons_against()
    if reasons:
        raise UnsupportedError(
            f"{subject.kind} '{subject.name}' cannot run here, so that nothing was tried", *reasons
        )
    try:
        for invariant in invariants:
            yield try_one(invariant, subject)
    finally:
        subject.close()


def try_one(invariant: Invariant, subject: Subject) -> Outcome:
    """Try one invariant. Raises SampleNeededError when the kind needs one."""
    start_s = time.perf_counter()
    state: Literal["passed", "failed", "refused"] = "failed"
    try:
        with without_log():  # a report is no place for what a trial is worth in the log
            text = invariant.run(subject) or ""
        state = "refused" if text else "passed"
    except PromiseBroken as error:
        text = str(error)
    return Outcome(invariant, state, time.perf_counter() - start_s, text)
