"""Runs steps: plan in, accepted token ids out. Logits never leave this module.

Knows an architecture, its buffers and the rows. Does not know files, policies or text.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from octavo.engine.plan import RowError, StepResult
from octavo.execution.batching import BatchBuilder
from octavo.execution.drafts import DraftDesk
from octavo.execution.pooling import PromptPooler
from octavo.execution.recording import is_recordable, recording
from octavo.execution.resources import Resources
from octavo.execution.rows import Rows
from octavo.execution.sampling import RowSampler
from octavo.execution.scoring import PromptScorer
from octavo.interfaces.executor import CacheGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.plan import RowAdvance, StepPlan
    from octavo.execution.batching import FlatBatch
    from octavo.execution.recording import Record
    from octavo.execution.sampling import Draws
    from octavo.interfaces.architecture import Architecture, StepBuffers
    from octavo.interfaces.proposer import ExecutorProposer
    from octavo.interfaces.sampler import SamplerStage


#: rows for tokens that grammars force, which are offered as drafts whether or not others are
_FORCED_ROWS: Final = 64
#: so many tokens are decodes when costs are measured; more are a piece of a prompt
_MAX_DECODES: Final = 16


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
    max_drafts: int = 0
    groups: tuple[CacheGroup, ...] = (CacheGroup(),)
    can_roll_back: bool = True

    @property
    def max_logit_rows(self) -> int:
        """Return how many rows of logits a step may have: tokens to be drawn, and drafts."""
        return self.max_num_seqs * (1 + self.max_drafts) + _FORCED_ROWS

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
        *,
        resources: Resources | None = None,
        proposer: ExecutorProposer | None = None,
    ) -> None:
        self.architecture = architecture
        self.buffers = buffers
        self.shape = shape
        self.weight_facts = WeightFacts()
        self.rows = Rows(
            shape.max_num_seqs,
            shape.max_model_len,
            shape.max_blocks_per_seq,
            len(buffers.groups),
        )
        self.resources = resources or Resources()
        self.proposer = proposer
        self._drafts = DraftDesk()
        self._record: Record | None = None
        self._builder = BatchBuilder(self.rows, buffers)
        self._sampler = RowSampler(architecture.ops, self.rows, stages)
        self._scorer = PromptScorer(architecture, self.rows, buffers)
        self._pooler = PromptPooler(self.rows, buffers)

    def _run_layers(self) -> None:
        """Run the step: recorded once, then replayed, where everything in it can be."""
        if self._record is not None:
            self._record.replay()
            return
        model = self.architecture
        with recording(model) if is_recordable(model) else nullcontext() as record:
            model.forward(self.buffers)
            model.logits(self.buffers)
        self._record = record

    def record_anew(self) -> None:
        """Forget the recorded step: the model is made of other operations now."""
        self._record = None

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepResult:
        """Execute one step. Steps must come in the order of their plans."""
        self._apply(plan)
        batch = self._builder.build(plan.advances)
        failed = self.resources.fill(batch, plan.advances)
        self._run_layers()
        errors = {index: RowError(why) for index, why in failed.items()}
        result = StepResult(plan.step, [()] * len(plan.advances), errors=errors)
        if any(advance.is_prompt_scored for advance in plan.advances):
            self._scorer.score(plan, batch, result)
            self._pooler.pool(plan, batch, result)
        if len(batch.sampled):
            self._sample(plan, batch, result)
        return result

    def _apply(self, plan: StepPlan) -> None:
        rows = self.rows
        for row in plan.ends:
            rows.end(row)
            self._forget(row)
        for row in plan.pauses:
            rows.pause(row)
            self._forget(row)
        for request_id in plan.drops:
            rows.drop(request_id)
        for start in plan.starts:
            grammar = self.resources.start(start.row, start.spec, start.token_ids)
            rows.start(start, self._sampler.custom_stages(start), grammar)
        for advance in plan.advances:
            rows.add_blocks(advance)
            if advance.drafts:
                rows.guess(advance.row, advance.drafts)

    def _forget(self, row: int) -> None:
        self.resources.end(row)
        if self.proposer is not None:
            self._drafts.forget(self.proposer, row)

    def _sample(self, plan: StepPlan, batch: FlatBatch, result: StepResult) -> None:
        logits = self.buffers.logits[: len(batch.sampled)]
        draws = self._sampler.sample(logits, batch, plan.advances)
        owners = batch.sampled.tolist()
        first = 0
        while first < len(owners):
            index = owners[first]
            advance = plan.advances[index]
            self._accept(advance, index, first, draws, result)
            first += len(advance.drafts) + 1
        self._propose(plan, result)

    def _accept(
        self, advance: RowAdvance, index: int, first: int, draws: Draws, result: StepResult
    ) -> None:
        """Take what was drawn, from row `first` of the logits on, while the drafts agree."""
        drafts, num_rows = advance.drafts, len(advance.drafts) + 1
        accepted: list[int] = []
        for offset in range(num_rows):
            if draws.errors and first + offset in draws.errors:
                if accepted:
                    break  # it fails in the next step, as it would without drafts
                result.errors[index] = draws.errors[first + offset]
                return
            token_id = draws.token_ids[first + offset]
            accepted.append(token_id)
            if offset < num_rows - 1 and token_id != drafts[offset]:
                break
        rows, row = self.rows, advance.row
        for token_id in accepted:
            rows.append(row, token_id)
        result.token_ids[index] = tuple(accepted)
        if draws.logprobs and first in draws.logprobs:
            result.logprobs[index] = [draws.logprobs[first + i] for i in range(len(accepted))]
        stages, grammar = rows.stages[row], rows.grammars[row]
        if stages is not None:
            stages.commit(accepted)
        if grammar is not None:
            grammar.commit(accepted)

    def _propose(self, plan: StepPlan, result: StepResult) -> None:
        """Leave in the result what may come next: what grammars force, or else guesses."""
        wanted: list[tuple[int, int]] = []
        indices: list[int] = []
        for index, advance in enumerate(plan.advances):
            if not advance.num_drafts_wanted or not result.token_ids[index]:
                continue
            grammar = self.rows.grammars[advance.row]
            forced = () if grammar is None else grammar.forced(advance.num_drafts_wanted)
            if forced:
                result.drafts[index] = tuple(forced)
            elif self.proposer is not None:
                wanted.append((advance.row, advance.num_drafts_wanted))
                indices.append(index)
        if self.proposer is not None and wanted:
            for index, drafts in zip(indices, self._drafts.ask(self.proposer, wanted), strict=True):
                if drafts:
                    result.drafts[index] = drafts

    @torch.inference_mode()
    def run_dummy(self, num_tokens: int, context: int = 0) -> None:
        """Run the layers over meaningless tokens on the null block, to warm up or to measure.

        One sequence advances by `num_tokens` after `context` others. Few tokens stand for
        decodes and drafts, and have logits each; many for a piece of a prompt, which has one row.
        No row may be in use; none is touched.
        """
        num_rows = num_tokens if num_tokens <= _MAX_DECODES else 1
        buffers, batch = self.buffers, self.buffers.attention
        buffers.token_ids[:num_tokens] = 0
        buffers.positions[:num_tokens] = torch.arange(context, context + num_tokens)
        for group in buffers.groups:
            group.slots[:num_tokens] = buffers.positions[:num_tokens] % batch.block_size
            group.block_tables[0] = 0
        batch.seq_lens[0] = context + num_tokens
        batch.query_start[0], batch.query_start[1] = 0, num_tokens
        buffers.logit_rows[:num_rows] = torch.arange(num_tokens - num_rows, num_tokens)
        for count, value in (
            (buffers.num_tokens, num_tokens),
            (batch.num_seqs, 1),
            (buffers.num_rows, num_rows),
        ):
            count.value = value
        self._run_layers()
