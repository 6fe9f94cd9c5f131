"""What a step costs on this machine, measured once at start and then fixed.

Other programs can only make a step slower, never faster. So the sizes take turns, round after
round, to and fro, and the fastest time of each counts: a burst of other work hits a round, not a
size.

Knows a runner. Does not know budgets or policies: they read `StepCosts`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from octavo.interfaces.executor import StepCosts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: how many tokens are timed; what this machine does with more goes on in proportion
SIZES = (1, 16, 128)
#: attention's share is timed with so many tokens after so many others
CONTEXT_TOKENS = 128
CONTEXT = 1024
#: so many rounds at least, and then on while a round finds a step that is faster by so much ...
_MIN_ROUNDS = 3
_GAIN = 0.05
#: ... but no new round is begun after so many seconds
_MAX_SECONDS = 2.0
#: each further token costs at least this much more, so that costs always rise
_LEAST_MS_PER_TOKEN = 1e-4

#: tokens of a step, and the positions before them
_Probe: TypeAlias = tuple[int, int]


class Limits(Protocol):
    """The largest step there can be; a `RunnerShape` says so."""

    @property
    def max_num_tokens(self) -> int:
        """Return the most tokens of a step."""

    @property
    def max_model_len(self) -> int:
        """Return the most tokens of a sequence."""


class Rehearsal(Protocol):
    """What runs steps to be measured; a `ModelRunner` does."""

    @property
    def shape(self) -> Limits:
        """Return the largest step."""

    def run_dummy(self, num_tokens: int, context: int = 0) -> None:
        """Run a step over so many meaningless tokens, after so many others."""


def measure_costs(
    runner: Rehearsal, clock: Callable[[], float] = time.perf_counter, *, max_drafts: int = 0
) -> StepCosts:
    """Time steps of a few sizes, as one sequence each. `clock` returns seconds.

    With drafts, steps of one draft and of `max_drafts` are timed too: a second token may cost far
    more than each further one.
    """
    shape = runner.shape
    most = min(shape.max_num_tokens, shape.max_model_len)
    drafting = (2, 1 + max_drafts) if max_drafts else ()
    sizes = sorted({min(size, most) for size in (*SIZES, *drafting)})
    size = min(CONTEXT_TOKENS, most)
    context = min(CONTEXT, shape.max_model_len - size)
    probes = [(size, 0) for size in sizes]
    if context >= size:  # else it is too short to matter
        probes.append((size, context))
    runner.run_dummy(1)  # the first touch of weights and buffers is no measure of anything
    fastest_ms = _fastest_ms(runner, probes, clock)
    points = rising([(size, fastest_ms[size, 0]) for size in sizes])
    if len(points) == 1:  # a context of one token: whatever comes next is dearer
        points.append((points[0][0] + 1, 2 * points[0][1]))
    if context < size:
        return StepCosts(tuple(points))
    more_ms = fastest_ms[size, context] - dict(points)[size]
    return StepCosts(tuple(points), max(0.0, more_ms) / (size * context))


def measure_draft_ms(
    rehearse: Callable[[], None], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Time what makes one draft: the fastest of a few runs, after a first one."""
    rehearse()
    taken_s = []
    for _ in range(_MIN_ROUNDS):
        start_s = clock()
        rehearse()
        taken_s.append(clock() - start_s)
    return 1000 * min(taken_s)


def _fastest_ms(
    runner: Rehearsal, probes: Sequence[_Probe], clock: Callable[[], float]
) -> dict[_Probe, float]:
    """Return the best time of each probe, over rounds that go on while they gain something."""
    fastest_s: dict[_Probe, float] = {}
    num_rounds, spent_s, is_gaining = 0, 0.0, True
    while (num_rounds < _MIN_ROUNDS or is_gaining) and spent_s < _MAX_SECONDS:
        is_gaining = False
        for probe in probes if num_rounds % 2 == 0 else reversed(probes):
            start_s = clock()
            runner.run_dummy(*probe)
            taken_s = clock() - start_s
            spent_s += taken_s
            before_s = fastest_s.get(probe, float("inf"))
            fastest_s[probe] = min(before_s, taken_s)
            is_gaining |= taken_s < (1 - _GAIN) * before_s
        num_rounds += 1
    return {probe: 1000 * taken_s for probe, taken_s in fastest_s.items()}


def rising(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return points that rise with the size: no step costs more than a longer one did."""
    capped: list[tuple[int, float]] = []
    ceiling_ms = float("inf")
    for size, taken_ms in reversed(points):
        ceiling_ms = min(ceiling_ms, taken_ms)
        capped.append((size, ceiling_ms))
    rising: list[tuple[int, float]] = []
    for size, taken_ms in reversed(capped):
        least_ms = 0.0
        if rising:
            before, before_ms = rising[-1]
            least_ms = before_ms + (size - before) * _LEAST_MS_PER_TOKEN
        rising.append((size, max(taken_ms, least_ms)))
    return rising
