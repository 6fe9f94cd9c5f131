"""From a step's logits to token ids: gathers the rows' parameters and hands them to the op set.

Native stages run fused, for all rows at once. A row with logits processors or with a stage of
its own is edited first, by itself; an error there is that row's alone.

Knows rows and logits. Does not know models, the schedule or how the ops compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.engine.messages import TokenLogprobs
from octavo.execution.processors import apply_processors
from octavo.interfaces.sampler import LogprobInputs, SamplingInputs, SamplingRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.engine.plan import RowSpec
    from octavo.execution.rows import Rows
    from octavo.interfaces.ops import OpSet
    from octavo.interfaces.sampler import LogprobOutputs, SamplerStage

#: what the noise is for: the counter's third number
PURPOSE_SAMPLE = 0


class RowSampler:
    """Samples one token for each given row. `stages` is the whole pipeline, in order."""

    def __init__(self, ops: OpSet, rows: Rows, stages: Sequence[SamplerStage]) -> None:
        self._ops = ops
        self._rows = rows
        self._stages = tuple(sorted(stages, key=lambda stage: stage.position))

    def custom_stages(self, spec: RowSpec) -> tuple[SamplerStage, ...]:
        """Return the stages to run one by one: none, unless an active one is not native."""
        active = [stage for stage in self._stages if stage.is_active(spec.params)]
        if all(stage.is_native for stage in active):
            return ()
        return tuple(active)

    def sample(
        self, logits: Tensor, rows: np.ndarray
    ) -> tuple[np.ndarray, dict[int, list[TokenLogprobs]], dict[int, str]]:
        """Draw one token per row of logits [n, vocab]; rows: int64 [n], the batch rows.

        Returns token ids [n], logprobs by index where asked for, and errors by index. Appends
        nothing to the rows. The logits may be overwritten.
        """
        data = self._rows
        errors: dict[int, str] = {}
        raw, wanted = self._keep_raw(logits, rows)
        positions = self._output_positions(rows)
        inputs = SamplingInputs(
            temperature=data.temperature[rows],
            top_k=data.top_k[rows],
            top_p=data.top_p[rows],
            min_p=data.min_p[rows],
            uniforms=self._ops.uniforms(
                data.seeds[rows], positions, data.choices[rows], PURPOSE_SAMPLE
            ),
        )
        if data.has_edits[rows].any():
            for index in np.flatnonzero(data.has_edits[rows]).tolist():
                try:
                    self._edit(logits, index, int(rows[index]), inputs)
                except Exception as error:  # noqa: BLE001 - a request's own code may raise anything
                    errors[index] = f"{type(error).__name__}: {error}"
        outputs = self._ops.sample(logits, inputs)
        for index in np.flatnonzero(outputs.is_bad).tolist():
            errors.setdefault(index, "the logits hold NaN, or no token may be drawn")
        logprobs = self._logprobs(raw, wanted, rows, outputs.token_ids)
        return outputs.token_ids, logprobs, errors

    def _output_positions(self, rows: np.ndarray) -> np.ndarray:
        data = self._rows
        positions = [
            data.num_tokens[row] - data.spec(row).num_prompt_tokens for row in rows.tolist()
        ]
        return np.asarray(positions, dtype=np.int64)

    def _edit(self, logits: Tensor, index: int, row: int, inputs: SamplingInputs) -> None:
        """Edit one row, or note for the op set how it is to be edited."""
        spec = self._rows.spec(row)
        params = spec.params
        history = self._rows.history(row)
        output_ids = history[spec.num_prompt_tokens :]
        if params.logits_processors:
            prompt_ids = history[: spec.num_prompt_tokens]
            apply_processors(params.logits_processors, logits[index], prompt_ids, output_ids)
        if self._rows.stages[row]:
            self._run_stages(logits[index], row, history, inputs, index)
        else:
            self._note_edits(spec, index, row, output_ids, inputs)

    def _run_stages(
        self, logits: Tensor, row: int, history: list[int], inputs: SamplingInputs, index: int
    ) -> None:
        """Run the whole pipeline on one row; the op set then only draws."""
        spec = self._rows.spec(row)
        num_prompt = spec.num_prompt_tokens
        view = SamplingRow(
            spec.params,
            history[:num_prompt],
            history[num_prompt:],
            spec.eos_token_ids,
            spec.bad_words_ids,
        )
        for stage in self._rows.stages[row]:
            stage.apply(logits, view)
        inputs.temperature[index] = 1.0 if spec.params.temperature else 0.0
        inputs.top_k[index], inputs.top_p[index], inputs.min_p[index] = 0, 1.0, 0.0

    def _note_edits(
        self, spec: RowSpec, index: int, row: int, output_ids: list[int], inputs: SamplingInputs
    ) -> None:
        params = spec.params
        if params.allowed_token_ids:
            inputs.allowed.append((index, np.asarray(params.allowed_token_ids, dtype=np.int64)))
        if params.logit_bias:
            ids = np.fromiter(params.logit_bias.keys(), dtype=np.int64)
            adds = np.fromiter(params.logit_bias.values(), dtype=np.float32)
            inputs.bias.append((index, ids, adds))
        penalties = self._rows.penalties[row]
        if penalties is not None:
            inputs.penalties.append(penalties.row(index))
        banned = banned_ids(spec, output_ids)
        if banned:
            inputs.banned.append((index, np.asarray(banned, dtype=np.int64)))

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
    ) -> dict[int, list[TokenLogprobs]]:
        if raw is None:
            return {}
        specs = [self._rows.specs[row] for row in rows[wanted].tolist()]
        num_top = [spec.params.logprobs or 0 for spec in specs if spec is not None]
        chosen = token_ids[wanted].astype(np.int64)
        inputs = LogprobInputs(
            np.arange(len(wanted), dtype=np.int64), chosen, np.asarray(num_top, dtype=np.int32)
        )
        records = token_logprobs(self._ops.logprobs(raw, inputs), chosen.tolist())
        return {index: [record] for index, record in zip(wanted, records, strict=True)}


def banned_ids(spec: RowSpec, output_ids: Sequence[int]) -> list[int]:
    """Return the ids that may not be drawn now: ends before min_tokens, ends of bad words."""
    banned: list[int] = []
    if len(output_ids) < spec.params.min_tokens:
        banned.extend(spec.eos_token_ids)
        banned.extend(spec.params.stop_token_ids or ())
    for word in spec.bad_words_ids:
        num_before = len(word) - 1
        if num_before == 0 or tuple(output_ids[-num_before:]) == tuple(word[:-1]):
            banned.append(word[-1])
    return banned


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
