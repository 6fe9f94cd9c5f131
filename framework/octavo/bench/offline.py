"""Times an `LLM`: prefill and decode by number of sequences, and whole workloads.

Knows the offline API and random prompts. Does not know the machine's limits or how to print.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.llm import LLM

#: ids below this are often special tokens
_FIRST_ID = 10


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One number of sequences. Rates in tokens a second, over all sequences."""

    num_seqs: int
    prefill_s: float
    total_s: float
    prefill_rate: float
    decode_rate: float
    step_ms: float


@dataclass(frozen=True, slots=True)
class ThroughputResult:
    """One workload, from the first request to the last token."""

    num_requests: int
    num_prompt_tokens: int
    num_output_tokens: int
    elapsed_s: float

    @property
    def output_rate(self) -> float:
        """Return output tokens a second."""
        return self.num_output_tokens / self.elapsed_s

    @property
    def total_rate(self) -> float:
        """Return prompt and output tokens a second."""
        return (self.num_prompt_tokens + self.num_output_tokens) / self.elapsed_s


class PromptMaker:
    """Random prompts that share no prefix, so that no cache helps."""

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a workload, not a secret
        self._vocab_size = vocab_size

    def one(self, length: int) -> dict[str, list[int]]:
        """Return a prompt of `length` random ids."""
        high = self._vocab_size - 1
        return {"prompt_token_ids": [self._random.randint(_FIRST_ID, high) for _ in range(length)]}

    def sharegpt_lengths(self, num: int) -> list[tuple[int, int]]:
        """Return (prompt, output) lengths with ShareGPT's means, 161 and 338, and a long tail."""
        draw = self._random.expovariate
        return [(max(4, int(draw(1 / 161))), max(1, int(draw(1 / 338)))) for _ in range(num)]


def fixed_length(max_tokens: int) -> SamplingParams:
    """Return greedy parameters that generate exactly `max_tokens`."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)


def time_latency(
    llm: LLM, prompts: PromptMaker, num_seqs: int, lengths: tuple[int, int], num_iters: int
) -> LatencyRow:
    """Time `num_iters` runs of equal sequences; medians. `lengths` are prompt and output."""
    num_prompt, num_output = lengths
    prefills, totals = [], []
    for _ in range(num_iters):
        batch = [prompts.one(num_prompt) for _ in range(num_seqs)]
        prefills.append(_timed(partial(_generate, llm, batch, fixed_length(1))))
        batch = [prompts.one(num_prompt) for _ in range(num_seqs)]
        totals.append(_timed(partial(_generate, llm, batch, fixed_length(num_output))))
    prefill_s, total_s = median(prefills), median(totals)
    decode_s = max(1e-9, total_s - prefill_s)
    return LatencyRow(
        num_seqs,
        prefill_s,
        total_s,
        num_seqs * num_prompt / prefill_s,
        num_seqs * (num_output - 1) / decode_s,
        1000 * decode_s / max(1, num_output - 1),
    )


def time_throughput(
    llm: LLM, prompts: PromptMaker, lengths: Sequence[tuple[int, int]]
) -> ThroughputResult:
    """Send all requests at once and wait for the last."""
    batch = [prompts.one(num_prompt) for num_prompt, _ in lengths]
    params = [fixed_length(num_output) for _, num_output in lengths]
    elapsed_s = _timed(lambda: llm.generate(batch, params, use_tqdm=False))
    return ThroughputResult(
        len(lengths), sum(p for p, _ in lengths), sum(o for _, o in lengths), elapsed_s
    )


def _generate(llm: LLM, batch: list[dict[str, list[int]]], params: SamplingParams) -> None:
    llm.generate(batch, params, use_tqdm=False)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
