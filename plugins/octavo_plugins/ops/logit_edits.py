"""The edits of `SamplingInputs`, handed to the reference kernels for all rows at once.

Knows the inputs' layout. Does not know where they come from, nor sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octavo_kernels.reference.edits import (
    PenaltyEntries,
    add_bias,
    apply_penalties,
    ban,
    keep_masked,
    keep_only,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.interfaces.sampler import PenaltyRow, SamplingInputs


def edit_logits(logits: Tensor, inputs: SamplingInputs) -> None:
    """Apply allowed ids, biases, penalties, bans and masks to logits [rows, vocab], in place."""
    for row, ids in inputs.allowed:
        keep_only(logits, row, ids)
    if inputs.bias:
        ids_by_row = [ids for _, ids, _ in inputs.bias]
        rows = _repeated([row for row, _, _ in inputs.bias], ids_by_row)
        adds = np.concatenate([adds for _, _, adds in inputs.bias])
        add_bias(logits, rows, np.concatenate(ids_by_row), adds)
    if inputs.penalties:
        apply_penalties(logits, penalty_entries(inputs.penalties))
    if inputs.banned:
        ids_by_row = [ids for _, ids in inputs.banned]
        rows = _repeated([row for row, _ in inputs.banned], ids_by_row)
        ban(logits, rows, np.concatenate(ids_by_row))
    for row, mask in inputs.masks:
        keep_masked(logits, row, mask)


def penalty_entries(penalties: Sequence[PenaltyRow]) -> PenaltyEntries:
    """Return one entry for each token of the rows' histories."""
    ids_by_row = [penalty.token_ids for penalty in penalties]
    lengths = [len(ids) for ids in ids_by_row]

    def spread(values: list[float]) -> NDArray[np.float32]:
        return np.repeat(np.array(values, dtype=np.float32), lengths)

    return PenaltyEntries(
        rows=_repeated([penalty.row for penalty in penalties], ids_by_row),
        token_ids=np.concatenate(ids_by_row),
        output_counts=np.concatenate([penalty.output_counts for penalty in penalties]),
        repetition=spread([penalty.repetition for penalty in penalties]),
        frequency=spread([penalty.frequency for penalty in penalties]),
        presence=spread([penalty.presence for penalty in penalties]),
    )


def _repeated(rows: list[int], ids_by_row: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.repeat(np.array(rows, dtype=np.int64), [len(ids) for ids in ids_by_row])
