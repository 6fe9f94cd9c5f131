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
#: no step is begun that may end after so many seconds
_LONGEST_S = 15.0
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
    runner: Rehearsal,
    clock: Callable[[], float] = time.perf_counter,
    *,
    max_drafts: int = 0,
    is_rough: bool = False,
) -> StepCosts:
    """Time steps of a few sizes, as one sequence each. `clock` returns seconds.

    `is_rough` times each once and no context, for a quick start where nothing is decided by time.

    With drafts, steps of one draft and of `max_drafts` are timed too: a second token may cost far
    more than each further one. Where steps are very slow (a large model, an interpreter of
    kernels), only small ones are timed: measuring takes `_LONGEST_S`, or two steps if that is more.
    """
    shape = runner.shape
    most = min(shape.max_num_tokens, shape.max_model_len)
    drafting = (2, 1 + max_drafts) if max_drafts else ()
    timings = _Timings(runner, clock)
    timings.climb(sorted({min(size, most) for size in (*SIZES, *drafting)}))
    size = min(CONTEXT_TOKENS, most)
    context = 0
    if not is_rough:
        context = timings.climb_context(size, min(CONTEXT, shape.max_model_len - size))
        timings.repeat()
    fastest_ms = timings.fastest_ms()
    points = rising([(n, one_ms) for (n, before), one_ms in fastest_ms.items() if not before])
    if len(points) == 1:  # nothing larger could be timed: whatever comes next is dearer
        points.append((points[0][0] + 1, 2 * points[0][1]))
    if not context:
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


class _Timings:
    """Times steps, and keeps the fastest time of each."""

    def __init__(self, runner: Rehearsal, clock: Callable[[], float]) -> None:
        self._runner = runner
        self._clock = clock
        self._fastest_s: dict[_Probe, float] = {}
        self._spent_s = 0.0

    def climb(self, sizes: Sequence[int]) -> None:
        """Time each size once, the smallest first, as far as time goes.

        A step is taken to last longer in proportion to its size, at most. One that would take too
        long is approached by doubling, as it often does not.
        """
        self._runner.run_dummy(
            1
        )  # the first touch of weights and buffers is no measure of anything
        taken_s, reached = self._time((1, 0)), 1
        for size in sizes:
            while reached < size:
                step = size if self._has_time_for(taken_s * size / reached) else 2 * reached
                step = min(size, step)
                expected_s = taken_s * step / reached
                if not self._has_time_for(expected_s):
                    return
                taken_s, reached = self._time_new((step, 0), expected_s), step

    def climb_context(self, size: int, context: int) -> int:
        """Time `size` tokens after so many others, or fewer if that may take too long.

        Returns after how many; 0 when that is too few to matter, or would take too long.
        """
        taken_s = self._fastest_s.get((size, 0))
        if taken_s is None:
            return 0
        if not self._has_time_for(taken_s * (size + context) / size):
            context = min(size, context)
        expected_s = taken_s * (size + context) / size
        if context < size or not self._has_time_for(expected_s):
            return 0
        self._time_new((size, context), expected_s)
        return context

    def repeat(self) -> None:
        """Time all again, in rounds, for as long as they gain something."""
        probes = sorted(self._fastest_s, key=lambda probe: (probe[1], probe[0]))
        num_rounds, is_gaining = 1, True
        while (num_rounds < _MIN_ROUNDS or is_gaining) and self._spent_s < _MAX_SECONDS:
            is_gaining = False
            for probe in probes if num_rounds % 2 == 0 else reversed(probes):
                before_s = self._fastest_s[probe]
                is_gaining |= self._time(probe) < (1 - _GAIN) * before_s
            num_rounds += 1

    def fastest_ms(self) -> dict[_Probe, float]:
        """Return the best time of each probe, by size."""
        probes = sorted(self._fastest_s, key=lambda probe: (probe[1], probe[0]))
        return {probe: 1000 * self._fastest_s[probe] for probe in probes}

    def _has_time_for(self, seconds: float) -> bool:
        return self._spent_s + seconds <= _LONGEST_S

    def _time_new(self, probe: _Probe, expected_s: float) -> float:
        """Time a step of a new sort: again if it takes too long, as it may have been compiled."""
        taken_s = self._time(probe)
        return taken_s if taken_s <= expected_s else min(taken_s, self._time(probe))

    def _time(self, probe: _Probe) -> float:
        start_s = self._clock()
        self._runner.run_dummy(*probe)
        taken_s = self._clock() - start_s
        self._spent_s += taken_s
        self._fastest_s[probe] = min(taken_s, self._fastest_s.get(probe, taken_s))
        return taken_s


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
