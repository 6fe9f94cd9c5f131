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

#: a measurement of one size stops after this many seconds or this many runs
_MAX_SECONDS = 0.12
_MAX_RUNS = 3
_PREFILL_TOKENS = 128
_BATCH = 8


def measure_costs(runner: ModelRunner, clock: Callable[[], float] = time.perf_counter) -> StepCosts:
    """Time decode steps of one and of several sequences and a prefill; return the line through."""
    shape = runner.shape
    prefill_tokens = min(_PREFILL_TOKENS, shape.max_num_tokens, shape.max_model_len)
    batch = min(_BATCH, shape.max_num_seqs, shape.max_num_tokens)
    runner.run_dummy(1)  # first touch of weights and buffers is no measure of anything
    one_ms = _time_ms(runner, 1, 1, clock)
    batch_ms = _time_ms(runner, 1, batch, clock)
    prefill_ms = _time_ms(runner, prefill_tokens, 1, clock)
    per_token_ms = max(0.0, (prefill_ms - one_ms) / max(1, prefill_tokens - 1))
    extra_ms = (batch_ms - one_ms) / max(1, batch - 1) - per_token_ms
    per_sequence_ms = max(0.0, extra_ms)
    fixed_ms = max(0.0, one_ms - per_token_ms - per_sequence_ms)
    return StepCosts(fixed_ms, per_token_ms, per_sequence_ms)


def _time_ms(
    runner: ModelRunner, num_tokens: int, num_seqs: int, clock: Callable[[], float]
) -> float:
    times: list[float] = []
    while len(times) < _MAX_RUNS and sum(times) < _MAX_SECONDS:
        start = clock()
        runner.run_dummy(num_tokens, num_seqs)
        times.append(clock() - start)
    return 1000 * median(times)
