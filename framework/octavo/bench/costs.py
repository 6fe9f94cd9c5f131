"""Measures what steps cost, for `simulated`: through the engine, so that all of it counts.

    one sequence      a prompt of n tokens in one step, for a few n; one decode
    more of them      decodes of several sequences at once: what each adds
    after a context   what start-up measured

Steps of each size take turns, and the fastest of each counts, as at start-up. Knows an engine and
its steps. Does not know models, nor how to print.
"""

from __future__ import annotations

import time
from itertools import count
from statistics import fmean
from typing import TYPE_CHECKING, Final

from octavo.bench.offline import PromptMaker, fixed_length
from octavo.engine.messages import EngineRequest
from octavo.execution.cost_table import CostTable
from octavo.execution.measure import rising
from octavo.interfaces.executor import StepCosts

if TYPE_CHECKING:
    from octavo.engine.engine import Engine

#: prompts that are timed, as far as they fit into one step
SIZES: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
#: sequences that decode at once, as far as they may
BATCHES: Final = (2, 4, 8, 16, 32)
#: so many rounds, but no new one is begun after so many seconds
_ROUNDS: Final = 4
_MAX_SECONDS: Final = 20.0
_DECODE_STEPS: Final = 4
_PROMPT_TOKENS: Final = 16


class CostMeter:
    """Times steps of an engine that has nothing else to do and whose steps have no time limit."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._prompts = PromptMaker(engine.info.vocab_size)
        self._numbers = count()
        limits = engine.core.limits
        longest = min(limits.max_num_batched_tokens, engine.info.max_model_len - 1)
        self._sizes = [size for size in SIZES if size <= longest] or [longest]
        self._batches = [size for size in BATCHES if size <= limits.max_num_seqs]

    def measure(self) -> CostTable:
        """Return the table; machine and model are for the caller to say."""
        prefill_ms: dict[int, float] = {}
        decode_ms: dict[int, float] = {}
        started_s = time.perf_counter()
        for round_number in range(_ROUNDS):
            if round_number and time.perf_counter() - started_s > _MAX_SECONDS:
                break
            for size in self._sizes:
                _keep_least(prefill_ms, size, self._prefill_ms(size))
            for num_seqs in (1, *self._batches):
                _keep_least(decode_ms, num_seqs, self._decode_ms(num_seqs))
        per_context_ms = self._engine.core.costs.per_context_ms
        points = rising(sorted({1: decode_ms[1], **prefill_ms}.items()))
        if len(points) == 1:  # a context of one token: whatever comes next is dearer
            points.append((points[0][0] + 1, 2 * points[0][1]))
        costs = StepCosts(tuple(points), per_context_ms)
        context = _PROMPT_TOKENS + _DECODE_STEPS / 2
        more = [
            (decode_ms[size] - costs.predict_ms(size, round(size * context))) / (size - 1)
            for size in self._batches
        ]
        return CostTable(costs, max(0.0, fmean(more)) if more else 0.0)

    def _prefill_ms(self, num_tokens: int) -> float:
        """Return the time of the step in which one prompt is computed."""
        request_id = self._add(num_tokens, 1)
        taken_ms = self._step_ms()
        self._engine.abort([request_id])
        return taken_ms

    def _decode_ms(self, num_seqs: int) -> float:
        """Return the time of a step in which so many sequences decode."""
        ids = [self._add(_PROMPT_TOKENS, _DECODE_STEPS + num_seqs + 2) for _ in range(num_seqs)]
        waiting = set(ids)
        while waiting:
            news = self._engine.step()
            waiting.difference_update(one.request_id for one in news if one.token_ids)
        taken_ms = min(self._step_ms() for _ in range(_DECODE_STEPS))
        self._engine.abort(ids)
        return taken_ms

    def _add(self, num_prompt: int, num_output: int) -> str:
        request_id = f"cost-{next(self._numbers)}"
        prompt = self._prompts.one(num_prompt)["prompt_token_ids"]
        request = EngineRequest(
            request_id, prompt, fixed_length(num_output), num_output, 0, time.monotonic()
        )
        self._engine.add(request)
        return request_id

    def _step_ms(self) -> float:
        start_s = time.perf_counter()
        self._engine.step()
        return 1000 * (time.perf_counter() - start_s)


def _keep_least(times_ms: dict[int, float], size: int, taken_ms: float) -> None:
    times_ms[size] = min(taken_ms, times_ms.get(size, taken_ms))
