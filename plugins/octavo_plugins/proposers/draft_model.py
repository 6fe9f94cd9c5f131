"""`draft-model`: a smaller model writes ahead, one token after the other.

It reads the same tokens as the model, into a cache of its own with the model's block ids, and
draws each draft as the model would draw there: greedily, or with the noise that the request has
for that position. A draft of a sampled request is thus right where both models' distributions
put the same token under the same number, more often than their likeliest tokens agree.

Knows rows and its own model. Does not know how drafts are verified or what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.engine.plan import RowAdvance
from octavo.execution.batching import BatchBuilder
from octavo.execution.buffers import make_buffers
from octavo.interfaces.attention import CacheSpec
from octavo.interfaces.proposer import ExecutorProposer
from octavo_plugins.proposers.draft_loading import load_draft
from octavo_plugins.proposers.draft_progress import DraftProgress
from octavo_plugins.proposers.options import DraftModelOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.config.resolved import ResolvedConfig
    from octavo.execution.buffers import StepCapacity
    from octavo.execution.cache_layout import CacheLayout
    from octavo.execution.rows import Rows
    from octavo.interfaces.architecture import Architecture, StepBuffers
    from octavo.interfaces.sampler import SamplingInputs

#: a row that is up to date has at most so many tokens to read before its first draft
_STEADY_TOKENS = 2


@dataclass(slots=True)
class _Draft:
    """What is drafted for one row: `tokens` so far, `wanted` in the end."""

    row: int
    wanted: int
    tokens: list[int] = field(default_factory=list)


class DraftModel(ExecutorProposer):
    """Drafts with a model that has the same vocabulary. All rows of a step are drafted together."""

    Options = DraftModelOptions

    _model: Architecture
    _rows: Rows
    _buffers: StepBuffers
    _builder: BatchBuilder
    _progress: DraftProgress

    def __init__(self, options: DraftModelOptions | None = None) -> None:
        super().__init__(options)
        self._settings = options or DraftModelOptions()
        self._max_positions = 0

    @property
    def max_drafts(self) -> int:
        """Return the most drafts that are ever proposed for one request and step."""
        return self._settings.num_drafts

    def load(self, config: ResolvedConfig, target: Architecture) -> None:
        """Load the draft model, or share the target's weights with it."""
        settings = self._settings
        self._model = load_draft(config, target, settings.model, settings.num_layers)

    def cache_specs(self) -> Sequence[CacheSpec]:
        """Return what its layers cache. It may read behind the model, so no block is out of reach.

        A window still holds for what its layers attend to.
        """
        specs = self._model.cache_specs()
        return [replace(spec, reach=None) for spec in specs if isinstance(spec, CacheSpec)]

    def prepare(
        self, rows: Rows, capacity: StepCapacity, layout: CacheLayout, num_blocks: int
    ) -> None:
        """Allocate its step and its cache."""
        steady = capacity.max_seqs * _STEADY_TOKENS
        own = replace(
            capacity,
            max_tokens=min(capacity.max_tokens, steady + self._settings.chunk_tokens),
            max_rows=capacity.max_seqs,
        )
        # the last token that a row has room for is never read
        longest = min(self._model.max_positions, rows.token_ids.shape[1] - 1)
        self._model.prepare(own.max_tokens, own.max_rows, longest)
        self._max_positions = longest
        self._rows = rows
        self._buffers = make_buffers(self._model, own, layout, num_blocks)
        self._builder = BatchBuilder(rows, self._buffers)
        tables = rows.block_tables[layout.group_of[0]]
        self._progress = DraftProgress(rows, tables, num_blocks, capacity.block_size)

    def forget(self, row: int) -> None:
        """A row has ended, or begins anew."""
        self._progress.forget(row)

    @torch.inference_mode()
    def rehearse(self) -> None:
        """Read one meaningless token on the null block, and draw the next."""
        buffers, batch = self._buffers, self._buffers.attention
        for buffer in (buffers.token_ids, buffers.positions, buffers.logit_rows):
            buffer[0] = 0
        for group in buffers.groups:
            group.slots[0] = 0
            group.block_tables[0] = 0
        batch.seq_lens[0], batch.query_start[0], batch.query_start[1] = 1, 0, 1
        for count in (buffers.num_tokens, buffers.num_rows, batch.num_seqs):
            count.value = 1
        self._model.forward(buffers)
        self._model.logits(buffers)
        buffers.logits[:1].argmax(-1)

    @torch.inference_mode()
    def propose(self, wanted: Sequence[tuple[int, int]]) -> list[Sequence[int]]:
        """Return drafts for each (batch row, most tokens), none where it is not up to date."""
        drafts = [_Draft(row, min(most, self._room(row))) for row, most in wanted]
        live = self._catch_up([draft for draft in drafts if draft.wanted > 0])
        while live := [draft for draft in live if len(draft.tokens) < draft.wanted]:
            advances = []
            for draft in live:
                self._rows.guess(draft.row, tuple(draft.tokens))
                position = self._rows.num_tokens[draft.row] + len(draft.tokens) - 1
                advances.append(RowAdvance(draft.row, position, 1, (), is_sampling=True))
            self._run(advances, live)
        for draft in drafts:
            if draft.tokens:
                end = self._rows.num_tokens[draft.row]
                self._progress.advance(draft.row, end, draft.tokens[:-1])
        return [tuple(draft.tokens) for draft in drafts]

    def _room(self, row: int) -> int:
        """Return how many drafts the row's blocks have room for: the last one is not read."""
        size = self._buffers.attention.block_size
        end = min(self._rows.num_blocks[row] * size, self._max_positions)
        return min(self._settings.num_drafts, end - (self._rows.num_tokens[row] - 1))

    def _catch_up(self, drafts: list[_Draft]) -> list[_Draft]:
        """Read what is new, the shortest first; return those that then have their first draft.

        What exceeds one step is read in the next ones: those rows go without drafts meanwhile.
        """
        starts = [(self._progress.start_of(draft.row), draft) for draft in drafts]
        starts.sort(key=lambda one: self._rows.num_tokens[one[1].row] - one[0])
        left = min(
            len(self._buffers.token_ids),
            _STEADY_TOKENS * len(drafts) + self._settings.chunk_tokens,
        )
        advances, done = [], []
        for start, draft in starts:
            lag = self._rows.num_tokens[draft.row] - start
            num_tokens = min(lag, left)
            if num_tokens == 0:
                break
            left -= num_tokens
            is_done = num_tokens == lag
            advances.append(RowAdvance(draft.row, start, num_tokens, (), is_sampling=is_done))
            if is_done:
                done.append(draft)
            else:
                self._progress.advance(draft.row, start + num_tokens)
        if advances:
            self._run(advances, done)
        return done

    def _run(self, advances: list[RowAdvance], sampled: list[_Draft]) -> None:
        """Run one step of the draft model, and draw a token for each of `sampled`, in order."""
        self._builder.build(advances)
        self._model.forward(self._buffers)
        if not sampled:
            return
        self._model.logits(self._buffers)
        rows = np.array([draft.row for draft in sampled], dtype=np.int64)
        outputs = self._model.ops.sample(
            self._buffers.logits[: len(sampled)], self._inputs(rows, sampled)
        )
        pairs = zip(sampled, outputs.token_ids.tolist(), outputs.is_bad.tolist(), strict=True)
        for draft, token_id, is_bad in pairs:
            if is_bad:  # no number, no guess: the model itself may be fine
                draft.wanted = len(draft.tokens)
            else:
                draft.tokens.append(token_id)

    def _inputs(self, rows: np.ndarray, drafts: list[_Draft]) -> SamplingInputs:
        """Return how the model will draw at the same positions, edits of its logits apart."""
        data = self._rows
        positions = np.array(
            [
                data.num_tokens[draft.row]
                - data.spec(draft.row).num_prompt_tokens
                + len(draft.tokens)
                for draft in drafts
            ],
            dtype=np.int64,
        )
        return data.columns.inputs(self._model.ops, rows, positions)
