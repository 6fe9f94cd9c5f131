"""What a step costs on this machine, measured once at start and then fixed.

Knows a runner. Does not know budgets or policies: they read `StepCosts`.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from octavo.interfaces.executor import StepCosts

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.execution.runner import ModelRunner

#: how many tokens are timed; what this machine does with more goes on in proportion
SIZES = (1, 16, 128)
#: attention's share is timed with so many tokens after so many others
CONTEXT_TOKENS = 128
CONTEXT = 1024
#: one size is run until this many seconds or this many runs are reached
_MAX_SECONDS = 0.12
_MAX_RUNS = 3
#: each further token costs at least this much more, so that costs always rise
_LEAST_MS_PER_TOKEN = 1e-4


def measure_costs(runner: ModelRunner, clock: Callable[[], float] = time.perf_counter) -> StepCosts:
    """Time steps of a few sizes, as one sequence each."""
    shape = runner.shape
    most = min(shape.max_num_tokens, shape.max_model_len)
    sizes = sorted({min(size, most) for size in SIZES})
    runner.run_dummy(1)  # the first touch of weights and buffers is no measure of anything
    points: list[tuple[int, float]] = []
    for size in sizes:
        taken_ms = _time_ms(runner, size, 0, clock)
        if points:
            before, before_ms = points[-1]
            taken_ms = max(taken_ms, before_ms + (size - before) * _LEAST_MS_PER_TOKEN)
        points.append((size, taken_ms))
    if len(points) == 1:  # a context of one token: whatever comes next is dearer
        points.append((points[0][0] + 1, 2 * points[0][1]))
    return StepCosts(tuple(points), _per_context_ms(runner, points, most, clock))


def _per_context_ms(
    runner: ModelRunner,
    points: list[tuple[int, float]],
    most: int,
    clock: Callable[[], float],
) -> float:
    """Return what one token costs more for each position before it."""
    size, plain_ms = next(point for point in points if point[0] >= min(CONTEXT_TOKENS, most))
    context = min(CONTEXT, runner.shape.max_model_len - size)
    if context < size:  # too short a context to matter
        return 0.0
    taken_ms = _time_ms(runner, size, context, clock)
    return max(0.0, taken_ms - plain_ms) / (size * context)


def _time_ms(
    runner: ModelRunner, num_tokens: int, context: int, clock: Callable[[], float]
) -> float:
    times: list[float] = []
    while len(times) < _MAX_RUNS and sum(times) < _MAX_SECONDS:
        start = clock()
        runner.run_dummy(num_tokens, context)
        times.append(clock() - start)
    return 1000 * median(times)
