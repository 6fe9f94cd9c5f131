"""Times a model: prefill and decode by number of sequences, and whole workloads.

Knows the engine's steps, the offline API and random prompts. Does not know the machine's limits
or how to print.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import TYPE_CHECKING

from octavo.engine.messages import EngineRequest
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.engine import Engine
    from octavo.llm import LLM

#: ids below this are often special tokens
_FIRST_ID = 10


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One number of sequences. `step_ms`: a decode step; rates in tokens a second, of all."""

    num_seqs: int
    prefill_rate: float
    decode_rate: float

    @property
    def step_ms(self) -> float:
        """Return the mean milliseconds of a decode step."""
        return 1000 * self.num_seqs / self.decode_rate


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


class LatencyTimer:
    """Times steps of an engine in which equal sequences prefill, and then decode together."""

    def __init__(self, engine: Engine, prompts: PromptMaker) -> None:
        self._engine = engine
        self._prompts = prompts
        self._numbers = count()

    def time(self, num_seqs: int, lengths: tuple[int, int], num_iters: int) -> LatencyRow:
        """Return the medians of `num_iters` runs. `lengths`: prompt tokens, decode steps."""
        rows = [self._time_once(num_seqs, *lengths) for _ in range(num_iters)]
        return LatencyRow(
            num_seqs,
            median(row.prefill_rate for row in rows),
            median(row.decode_rate for row in rows),
        )

    def _time_once(self, num_seqs: int, num_prompt: int, num_steps: int) -> LatencyRow:
        """Time a prefill, and then steps that advance all."""
        engine = self._engine
        start_s = time.perf_counter()
        ids, num_prefilled = self.prefill(num_seqs, num_prompt, num_steps)
        first_s = time.perf_counter()
        num_decoded = 0
        for _ in range(num_steps):
            num_decoded += sum(len(output.token_ids) for output in engine.step())
        end_s = time.perf_counter()
        engine.abort(ids)
        return LatencyRow(
            num_seqs, num_prefilled / (first_s - start_s), num_decoded / (end_s - first_s)
        )

    def prefill(self, num_seqs: int, num_prompt: int, num_steps: int) -> tuple[list[str], int]:
        """Step until each of `num_seqs` sequences has its first token; `num_steps` more may follow.

        Returns their ids, and how many tokens that took: what those who were first decode beside
        the prefill of the others counts as prefill.
        """
        engine, size = self._engine, self._engine.core.limits.max_num_batched_tokens
        num_tokens = num_steps + 2 + num_seqs * (num_prompt + num_seqs) // size
        ids = [f"bench-{next(self._numbers)}" for _ in range(num_seqs)]
        for request_id in ids:
            prompt = self._prompts.one(num_prompt)["prompt_token_ids"]
            params = fixed_length(num_tokens)
            engine.add(EngineRequest(request_id, prompt, params, num_tokens, 0, 0.0))
        num_beside = 0
        waiting = set(ids)
        while waiting:
            outputs = engine.step()
            waiting.difference_update(output.request_id for output in outputs if output.token_ids)
            num_beside += sum(len(output.token_ids) for output in outputs)
        return ids, num_seqs * (num_prompt - 1) + num_beside


def time_throughput(
    llm: LLM, prompts: PromptMaker, lengths: Sequence[tuple[int, int]]
) -> ThroughputResult:
    """Send all requests at once and wait for the last."""
    batch = [prompts.one(num_prompt) for num_prompt, _ in lengths]
    params = [fixed_length(num_output) for _, num_output in lengths]
    start_s = time.perf_counter()
    llm.generate(batch, params, use_tqdm=False)
    return ThroughputResult(
        len(lengths),
        sum(prompt for prompt, _ in lengths),
        sum(output for _, output in lengths),
        time.perf_counter() - start_s,
    )
