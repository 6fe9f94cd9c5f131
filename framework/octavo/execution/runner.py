"""Runs steps: plan in, accepted token ids out. Logits never leave this module.

Knows an architecture, its buffers and the rows. Does not know files, policies or text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from octavo.engine.plan import StepResult
from octavo.execution.batching import BatchBuilder
from octavo.execution.rows import Rows
from octavo.execution.sampling import RowSampler
from octavo.execution.scoring import PromptScorer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.engine.plan import StepPlan
    from octavo.execution.batching import FlatBatch
    from octavo.interfaces.architecture import Architecture, StepBuffers
    from octavo.interfaces.sampler import SamplerStage


@dataclass(frozen=True, slots=True)
class WeightFacts:
    """How large the weights are that every token meets: bytes in the file, and their number."""

    num_bytes: int = 0
    num_weights: int = 0


@dataclass(frozen=True, slots=True)
class RunnerShape:
    """The capacities of a runner."""

    max_num_seqs: int
    max_num_tokens: int
    max_model_len: int
    block_size: int
    num_blocks: int

    @property
    def max_blocks_per_seq(self) -> int:
        """Return the length of a block table."""
        return -(-self.max_model_len // self.block_size)


class ModelRunner:
    """Owns the rows and the step buffers of one loaded model."""

    def __init__(
        self,
        architecture: Architecture,
        buffers: StepBuffers,
        stages: Sequence[SamplerStage],
        shape: RunnerShape,
        forward: Callable[[StepBuffers], Any] | None = None,
    ) -> None:
        self.architecture = architecture
        self.buffers = buffers
        self.shape = shape
        self.weight_facts = WeightFacts()
        self.rows = Rows(shape.max_num_seqs, shape.max_model_len, shape.max_blocks_per_seq)
        self._builder = BatchBuilder(self.rows, buffers)
        self._sampler = RowSampler(architecture.ops, self.rows, stages)
        self._scorer = PromptScorer(architecture, self.rows, buffers)
        self._forward = forward or self._run_layers

    def _run_layers(self, buffers: StepBuffers) -> None:
        self.architecture.forward(buffers)
        self.architecture.logits(buffers)

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepResult:
        """Execute one step. Steps must come in the order of their plans."""
        self._apply(plan)
        batch = self._builder.build(plan.advances)
        self._forward(self.buffers)
        result = StepResult(plan.step, [()] * len(plan.advances))
        self._scorer.score(plan, batch, result)
        if len(batch.sampled):
            self._sample(batch, result)
        return result

    def _apply(self, plan: StepPlan) -> None:
        rows = self.rows
        for row in plan.ends:
            rows.end(row)
        for start in plan.starts:
            rows.start(start, self._sampler.custom_stages(start.spec))
        for advance in plan.advances:
            rows.add_blocks(advance)

    def _sample(self, batch: FlatBatch, result: StepResult) -> None:
        logits = self.buffers.logits[: len(batch.sampled)]
        token_ids, logprobs, errors = self._sampler.sample(logits, batch.sampled_rows)
        indices = batch.sampled.tolist()
        rows = batch.sampled_rows.tolist()
        for i, (index, token_id) in enumerate(zip(indices, token_ids.tolist(), strict=True)):
            self.rows.append(rows[i], token_id)
            result.token_ids[index] = (token_id,)
        for i, records in logprobs.items():
            result.logprobs[indices[i]] = records
        for i, message in errors.items():
            result.errors[indices[i]] = message

    @torch.inference_mode()
    def run_dummy(self, num_tokens: int, context: int = 0) -> None:
        """Run the layers over meaningless tokens on the null block, to warm up or to measure.

        One sequence advances by `num_tokens` after `context` others. No row may be in use; none
        is touched.
        """
        buffers, batch = self.buffers, self.buffers.attention
        buffers.token_ids[:num_tokens] = 0
        buffers.positions[:num_tokens] = torch.arange(context, context + num_tokens)
        batch.slots[:num_tokens] = buffers.positions[:num_tokens] % batch.block_size
        batch.block_tables[0] = 0
        batch.seq_lens[0] = context + num_tokens
        batch.query_start[0], batch.query_start[1] = 0, num_tokens
        buffers.logit_rows[0] = num_tokens - 1
        for count, value in (
            (buffers.num_tokens, num_tokens),
            (batch.num_tokens, num_tokens),
            (batch.num_seqs, 1),
            (buffers.num_rows, 1),
        ):
            count.value = value
        self._forward(buffers)
