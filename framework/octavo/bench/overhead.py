"""What the engine costs beside the model: schedule, build, commit, encode; and what KV wastes.

Knows the null engine. Does not know how to print.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

import msgspec

from octavo.bench.null_model import null_engine
from octavo.bench.offline import PromptMaker
from octavo.engine.messages import EngineRequest
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.engine import Engine

#: the goal: microseconds a step, and microseconds for each running sequence
GOAL_FIXED_US, GOAL_PER_SEQUENCE_US = 150.0, 20.0
_WARM_STEPS, _TIMED_STEPS = 20, 200
_PROMPT_TOKENS = 128
_MODEL_LEN = 2048


@dataclass(frozen=True, slots=True)
class OverheadRow:
    """The median decode step with `num_seqs` running, in microseconds."""

    num_seqs: int
    step_us: float

    @property
    def goal_us(self) -> float:
        """Return what it may cost."""
        return GOAL_FIXED_US + GOAL_PER_SEQUENCE_US * self.num_seqs


def time_overhead(config: ResolvedConfig, num_seqs: int) -> OverheadRow:
    """Time decode steps of an engine without a model, outputs encoded as for another process."""
    changed = config.with_changes(engine={"max_num_seqs": num_seqs})
    num_blocks = num_seqs * _MODEL_LEN // config.engine.block_size + 1
    engine = null_engine(changed, num_blocks, _MODEL_LEN)
    num_prefill = -(-num_seqs * _PROMPT_TOKENS // config.engine.max_num_batched_tokens)
    num_tokens = 2 * num_prefill + _WARM_STEPS + _TIMED_STEPS + num_seqs
    for index in range(num_seqs):
        engine.add(_request(index, _PROMPT_TOKENS, num_tokens))
    while engine.stats().num_waiting or len(engine.step()) < num_seqs:
        engine.step()
    for _ in range(_WARM_STEPS):
        engine.step()
    encoder, times = msgspec.msgpack.Encoder(), []
    for _ in range(_TIMED_STEPS):
        start = time.perf_counter()
        encoder.encode(engine.step())
        times.append(time.perf_counter() - start)
    engine.close()
    return OverheadRow(num_seqs, 1e6 * median(times))


def kv_waste(config: ResolvedConfig, num_requests: int) -> float:
    """Return allocated minus used slots over allocated, averaged over the steps of a workload.

    Lengths are ShareGPT-like; shared blocks are counted once for each owner on both sides.
    """
    engine = null_engine(config, config.engine.max_num_seqs * _MODEL_LEN // 4, _MODEL_LEN)
    lengths = PromptMaker(2).sharegpt_lengths(num_requests)
    for index, (num_prompt, num_output) in enumerate(lengths):
        half = _MODEL_LEN // 2
        engine.add(_request(index, min(num_prompt, half), min(num_output, half)))
    shares = []
    while engine.has_work:
        engine.step()
        allocated, used = _slots(engine)
        if allocated:
            shares.append((allocated - used) / allocated)
    engine.close()
    return fmean(shares)


def _slots(engine: Engine) -> tuple[int, int]:
    size = engine.core.limits.block_size
    running = engine.core.running.requests
    allocated = sum(len(request.table.block_ids) for request in running) * size
    return allocated, sum(request.num_scheduled for request in running)


def _request(index: int, num_prompt: int, num_output: int) -> EngineRequest:
    prompt = [(index * 7 + position) % 900 for position in range(num_prompt)]
    params = SamplingParams(max_tokens=num_output, temperature=0.0)
    return EngineRequest(f"r{index}", prompt, params, num_output, 0, 0.0)
