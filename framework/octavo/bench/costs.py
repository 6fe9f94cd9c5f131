"""Measures what steps cost, for `simulated`: through the engine, so that all of it counts.

    one sequence      a prompt of n tokens in one step, for a few n; one decode
    more of them      decodes of several sequences at once: what each adds
    after a context   one decode after a long prompt: what each position before it adds; what it
                      adds to each token of a chunk is what start-up measured

Kernels work on 16, 32 or 64 tokens at a time and pad the rest. Sizes lie so that they pad as much
as any others do, on average.

Steps of each size take turns, and the median of each counts: a simulation is to last as long as a
real run does, in which not every step is the fastest. Knows an engine and its steps. Does not know
models, nor how to print.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Final

from octavo.bench.offline import PromptMaker, fixed_length
from octavo.engine.messages import EngineRequest
from octavo.execution.cost_table import CostTable
from octavo.execution.measure import rising
from octavo.interfaces.executor import StepCosts

if TYPE_CHECKING:
    from octavo.engine.engine import Engine

#: prompts that are timed, as far as they fit into one step
SIZES: Final = (8, 12, 28, 44, 76, 108, 140, 172, 204, 236, 268, 300, 396, 492, 780, 1004)
#: sequences that decode at once, as far as they may
BATCHES: Final = (2, 3, 5, 9, 13, 20, 29)
#: tokens of the long prompt, as far as the model takes them
CONTEXT: Final = 1000
#: so many rounds, but no new one is begun after so many seconds
_ROUNDS: Final = 4
_MAX_SECONDS: Final = 20.0
_DECODE_STEPS: Final = 16
_PROMPT_TOKENS: Final = 16


class CostMeter:
    """Times steps of an engine that has nothing else to do.

    Where steps have a limit of time, prompts that need more than one are left out.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._prompts = PromptMaker(engine.info.vocab_size)
        self._numbers = count()
        self._prefills_ms: defaultdict[int, list[float]] = defaultdict(list)
        self._decodes_ms: defaultdict[int, list[float]] = defaultdict(list)
        self._late_ms: list[float] = []
        self._context = max(1, min(CONTEXT, engine.info.max_model_len - 2 * _DECODE_STEPS))
        limits = engine.core.limits
        longest = min(limits.max_num_batched_tokens, engine.info.max_model_len - 1)
        self._sizes = [size for size in SIZES if size <= longest] or [longest]
        self._batches = [size for size in BATCHES if size <= limits.max_num_seqs]

    def measure(self) -> CostTable:
        """Return the table; machine and model are for the caller to say."""
        self.sample(_ROUNDS)
        return self.table()

    def sample(self, num_rounds: int) -> None:
        """Time steps of all sizes, so many rounds, if that does not take too long."""
        started_s = time.perf_counter()
        for round_number in range(num_rounds):
            if round_number and time.perf_counter() - started_s > _MAX_SECONDS:
                break
            for size in self._sizes:
                taken_ms = self._prefill_ms(size)
                if taken_ms is not None:
                    self._prefills_ms[size].append(taken_ms)
            for num_seqs in (1, *self._batches):
                self._decodes_ms[num_seqs] += self._decode_ms(num_seqs, _PROMPT_TOKENS)
            self._late_ms += self._decode_ms(1, self._context)

    def table(self) -> CostTable:
        """Return the table of what was sampled so far."""
        prefill_ms = {size: median(times) for size, times in self._prefills_ms.items()}
        decode_ms = {num_seqs: median(times) for num_seqs, times in self._decodes_ms.items()}
        points = rising(sorted({1: decode_ms[1], **prefill_ms}.items()))
        if len(points) == 1:  # a context of one token: whatever comes next is dearer
            points.append((points[0][0] + 1, 2 * points[0][1]))
        costs = StepCosts(tuple(points), self._engine.core.costs.per_context_ms)
        late_ms = (median(self._late_ms) - decode_ms[1]) / max(1, self._context - _PROMPT_TOKENS)
        more = [(size, decode_ms[size] - costs.predict_ms(size)) for size in self._batches]
        return CostTable(
            costs,
            sequence_points=((1, 0.0), *more) if more else (),
            decode_context_ms=max(0.0, late_ms),
        )

    def _prefill_ms(self, num_tokens: int) -> float | None:
        """Return the time of the step in which one prompt is computed; None where it took more."""
        request_id = self._add(num_tokens, 1)
        start_s = time.perf_counter()
        news = self._engine.step()
        taken_ms = 1000 * (time.perf_counter() - start_s)
        self._engine.abort([request_id])
        return taken_ms if any(one.token_ids for one in news) else None

    def _decode_ms(self, num_seqs: int, num_prompt: int) -> list[float]:
        """Return the times of steps in which so many sequences decode, after such prompts."""
        ids = [self._add(num_prompt, _DECODE_STEPS + num_seqs + 2) for _ in range(num_seqs)]
        waiting = set(ids)
        while waiting:
            news = self._engine.step()
            waiting.difference_update(one.request_id for one in news if one.token_ids)
        taken_ms = [self._step_ms() for _ in range(_DECODE_STEPS)]
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
