"""From a step's logits to token ids: gathers the rows' parameters and hands them to the op set.

Native stages run fused, for all rows at once. A row with logits processors or with a stage of
its own is edited first, by itself; an error there is that row's alone.

Knows rows and logits. Does not know models, the schedule or how the ops compute.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.engine.messages import TokenLogprobs
from octavo.engine.plan import RowError
from octavo.errors import AdapterError, OctavoError, RequestError
from octavo.execution.columns import UINT64
from octavo.execution.custom_stages import CustomStages, call_stage
from octavo.execution.masks import apply_mask
from octavo.execution.processors import apply_processors
from octavo.faults import FAULTS, FaultLog, raise_if_signalled
from octavo.interfaces.sampler import LogprobInputs, SamplingRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.engine.plan import RowAdvance, RowSpec, RowStart
    from octavo.execution.batching import FlatBatch
    from octavo.execution.rows import Rows
    from octavo.interfaces.ops import OpSet
    from octavo.interfaces.sampler import LogprobOutputs, SamplerStage, SamplingInputs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """One row of logits: its index, its batch row, the drafts before it, what its form allows."""

    index: int
    row: int
    offset: int
    drafts: tuple[int, ...]
    mask: np.ndarray | None


@dataclass(slots=True)
class Draws:
    """What was drawn from each row of logits.

    `logprobs` and `errors` by row of the logits, where there are any.
    """

    token_ids: list[int]
    logprobs: dict[int, TokenLogprobs]
    errors: dict[int, RowError]


class RowSampler:
    """Draws one token from each row of logits. `stages` is the whole pipeline, in order."""

    def __init__(self, ops: OpSet, rows: Rows, stages: Sequence[SamplerStage]) -> None:
        self._ops = ops
        self._rows = rows
        self._stages = tuple(sorted(stages, key=lambda stage: stage.position))
        self._faults = FaultLog(logger)

    def custom_stages(self, start: RowStart) -> CustomStages | None:
        """Return the stages to run one by one: none, unless an active one is not native.

        Where one fails, what is returned says so at the first row of logits.
        """
        spec, params = start.spec, start.spec.params
        if spec.grammar is not None:
            params = replace(params, min_tokens=0)  # its masks say when the text may end
        row, log = self._view(spec, start.token_ids), self._faults
        try:
            active = [
                stage for stage in self._stages if call_stage(stage, "is_active", params, log=log)
            ]
        except OctavoError as error:
            stages = CustomStages((), row, log)
            stages.fail(error)
            return stages
        if all(stage.is_native for stage in active):
            return None
        return CustomStages(active, row, log)

    def sample(self, logits: Tensor, batch: FlatBatch, advances: Sequence[RowAdvance]) -> Draws:
        """Draw from logits [n, vocab], which may be overwritten. Appends nothing to the rows.

        A row behind drafts is edited and drawn as if they were right: with them in its history,
        and with the noise of its own position.
        """
        data, rows = self._rows, batch.sampled_rows
        errors: dict[int, RowError] = {}
        raw, wanted = self._keep_raw(logits, rows)
        positions = self._output_positions(rows) + batch.offsets
        inputs = data.columns.inputs(self._ops, rows, positions)
        if data.has_edits[rows].any():
            self._edit_all(logits, batch, advances, inputs, errors)
        outputs = self._ops.sample(logits, inputs)
        for index in np.flatnonzero(outputs.is_bad).tolist():
            if index not in errors:
                errors[index] = self._why_bad(logits[index], int(rows[index]))
        logprobs = self._logprobs(raw, wanted, rows, outputs.token_ids)
        return Draws(outputs.token_ids.tolist(), logprobs, errors)

    def _output_positions(self, rows: np.ndarray) -> np.ndarray:
        data = self._rows
        positions = [
            data.num_tokens[row] - data.spec(row).num_prompt_tokens for row in rows.tolist()
        ]
        return np.asarray(positions, dtype=np.int64)

    def _edit_all(
        self,
        logits: Tensor,
        batch: FlatBatch,
        advances: Sequence[RowAdvance],
        inputs: SamplingInputs,
        errors: dict[int, RowError],
    ) -> None:
        """Edit each row that asks for it; what goes wrong in one is that row's error."""
        masks: Sequence[np.ndarray | None] = []
        for index in np.flatnonzero(self._rows.has_edits[batch.sampled_rows]).tolist():
            row, offset = int(batch.sampled_rows[index]), int(batch.offsets[index])
            drafts = advances[batch.sampled[index]].drafts
            try:
                grammar = self._rows.grammars[row]
                if grammar is not None and offset == 0:
                    masks = grammar.masks(drafts)
                mask = masks[offset] if grammar is not None and offset < len(masks) else None
                place = _Place(index, row, offset, drafts[:offset], mask)
                self._edit(logits, place, inputs)
            except FAULTS as error:  # a request's own code may raise anything
                raise_if_signalled(error)
                errors[index] = RowError.of(error)

    def _why_bad(self, logits: Tensor, row: int) -> RowError:
        """Return why no token could be drawn of logits [vocab], as the op set left them."""
        best, spec = float(logits.max()), self._rows.spec(row)
        if math.isnan(best) or best == math.inf or not self._rows.has_edits[row]:
            return _not_numbers(spec)
        return RowError.of(_nothing_left(spec))

    def _edit(self, logits: Tensor, place: _Place, inputs: SamplingInputs) -> None:
        """Edit one row, or note for the op set how it is to be edited."""
        spec, index = self._rows.spec(place.row), place.index
        params, num_prompt = spec.params, spec.num_prompt_tokens
        if params.logits_processors:
            history = self._history(place)
            apply_processors(
                params.logits_processors, logits[index], history[:num_prompt], history[num_prompt:]
            )
        stages = self._rows.stages[place.row]
        if stages is None:
            self._note_edits(spec, place, inputs)
            return
        if place.mask is not None:
            apply_mask(logits[index], place.mask)
        stages.apply(logits[index], self._view(spec, self._history(place)), place.offset)
        # the whole pipeline has run: the op set only draws
        inputs.temperature[index] = 1.0 if params.temperature else 0.0
        inputs.top_k[index], inputs.top_p[index], inputs.min_p[index] = 0, 1.0, 0.0

    def _history(self, place: _Place) -> list[int]:
        """Return all tokens before a row of logits, drafts included: as long as the request is."""
        return [*self._rows.history(place.row), *place.drafts]

    def _view(self, spec: RowSpec, history: Sequence[int]) -> SamplingRow:
        num_prompt = spec.num_prompt_tokens
        return SamplingRow(
            spec.params,
            history[:num_prompt],
            history[num_prompt:],
            spec.eos_token_ids,
            spec.bad_words_ids,
            uniform=partial(self._uniform, spec, len(history) - num_prompt),
        )

    def _uniform(self, spec: RowSpec, position: int, purpose: int) -> float:
        """Return a stage's own noise for the token at a position of the output."""
        seeds = np.array([spec.seed & UINT64], dtype=np.uint64)
        positions, choices = np.array([position]), np.array([spec.choice])
        return float(self._ops.uniforms(seeds, positions, choices, purpose)[0])

    def _note_edits(self, spec: RowSpec, place: _Place, inputs: SamplingInputs) -> None:
        if place.mask is not None:
            inputs.masks.append((place.index, place.mask))
        edits = self._rows.edits[place.row]
        if edits is not None:
            output_ids = self._history(place)[spec.num_prompt_tokens :]
            edits.note(place.index, output_ids, inputs)
        penalties = self._rows.penalties[place.row]
        if penalties is not None:
            inputs.penalties.append(penalties.row(place.index, place.drafts))

    # ------------------------------------------------------------------ logprobs

    def _keep_raw(self, logits: Tensor, rows: np.ndarray) -> tuple[Tensor | None, list[int]]:
        """Copy the rows whose logprobs are wanted: those are of the logits as the model gave.

        Returns the copies and the indices that they belong to.
        """
        specs = self._rows.specs
        wanted = [
            index
            for index, row in enumerate(rows.tolist())
            if (spec := specs[row]) is not None and spec.params.logprobs is not None
        ]
        return (logits[torch.as_tensor(wanted)] if wanted else None), wanted

    def _logprobs(
        self, raw: Tensor | None, wanted: list[int], rows: np.ndarray, token_ids: np.ndarray
    ) -> dict[int, TokenLogprobs]:
        if raw is None:
            return {}
        params = [self._rows.spec(row).params for row in rows[wanted].tolist()]
        num_top = [one.logprobs or 0 for one in params]
        chosen = token_ids[wanted].astype(np.int64)
        inputs = LogprobInputs(
            np.arange(len(wanted), dtype=np.int64), chosen, np.asarray(num_top, dtype=np.int32)
        )
        records = token_logprobs(self._ops.logprobs(raw, inputs), chosen.tolist())
        for index, (one, record) in enumerate(zip(params, records, strict=True)):
            if one.logprob_token_ids:
                self._add_named(raw, index, one.logprob_token_ids, record)
        return dict(zip(wanted, records, strict=True))

    def _add_named(
        self, raw: Tensor, index: int, token_ids: Sequence[int], record: TokenLogprobs
    ) -> None:
        """Add the logprobs and ranks of tokens that a request names to what is told of a row."""
        ids = np.asarray(list(dict.fromkeys(token_ids)), dtype=np.int64)
        rows, none = np.full(len(ids), index, np.int64), np.zeros(len(ids), np.int32)
        found = self._ops.logprobs(raw, LogprobInputs(rows, ids, none))
        record.top_ids, record.top_logprobs = ids.tolist(), found.chosen.tolist()
        record.top_ranks = found.ranks.tolist()


def _not_numbers(spec: RowSpec) -> RowError:
    """Return the error of logits that are no numbers: the request's own fault with adapters."""
    headline = "the logits hold NaN or infinity"
    uses = [f"'{use.spec.name}' (scale {use.scale:g})" for use in spec.adapters if use.scale]
    if not uses:
        return RowError(headline)
    facts = (f"the request is run with adapters: {', '.join(uses)}", "try smaller scales")
    return RowError.of(AdapterError(headline, *facts, param="lora_request"))


def _nothing_left(spec: RowSpec) -> RequestError:
    """Return the error of a request that allows no token any more."""
    params, reasoning = spec.params, spec.reasoning
    fields = ["structured_outputs"] * (spec.grammar is not None)
    fields += ["thinking_token_budget"] * (reasoning is not None and reasoning.budget is not None)
    restrictions = ("allowed_token_ids", "bad_words", "min_tokens", "logits_processors")
    fields += [name for name in restrictions if getattr(params, name)]
    who = " with ".join(fields) or "what the request asks for"
    return RequestError(f"no token may be drawn: none is left by {who}", param=(*fields, None)[0])


def token_logprobs(outputs: LogprobOutputs, token_ids: Sequence[int]) -> list[TokenLogprobs]:
    """Turn an op set's arrays into one record per row."""
    return [
        TokenLogprobs(
            int(token_id),
            float(outputs.chosen[index]),
            int(outputs.ranks[index]),
            outputs.top_ids[index].tolist(),
            outputs.top_logprobs[index].tolist(),
        )
        for index, token_id in enumerate(token_ids)
    ]
