"""Pools the hidden states of prompts into one vector each: that of the last token, or the mean.

A mean is summed up in float64 in the order of the positions, one by one: its bits are the same
however the prompt was cut into steps, and whoever else was in them.

Knows hidden states and rows. Does not know the schedule, or what a vector is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octavo.engine.plan import RowError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.engine.plan import RowAdvance, RowSpec, StepPlan, StepResult
    from octavo.execution.batching import FlatBatch
    from octavo.execution.rows import Rows
    from octavo.interfaces.architecture import StepBuffers


class PromptPooler:
    """Pools the prompts of rows that ask for it; a sum is kept from step to step.

    A row's sum begins anew with its first position, so that one that was preempted leaves none.
    """

    def __init__(self, rows: Rows, buffers: StepBuffers) -> None:
        self._rows = rows
        self._buffers = buffers
        self._sums: dict[int, NDArray[np.float64]] = {}  # by row, each [hidden]

    def pool(self, plan: StepPlan, batch: FlatBatch, result: StepResult) -> None:
        """Fill `result.pooled` for the prompts that end in this step.

        A vector with what is no number is an error of its request.
        """
        for index, advance in enumerate(plan.advances):
            if not advance.is_prompt_scored or index in result.errors:
                continue
            spec = self._rows.spec(advance.row)
            if spec.pooling is None:
                continue
            vector = self._vector(advance, spec, int(batch.query_start[index]))
            if vector is None:
                continue
            if np.isfinite(vector).all():
                result.pooled[index] = vector.astype("<f4").tobytes()
            else:
                result.errors[index] = RowError("the hidden states of this prompt are no numbers")

    def _vector(
        self, advance: RowAdvance, spec: RowSpec, first: int
    ) -> NDArray[np.float64 | np.float32] | None:
        """Return the vector [hidden] of a prompt that ends with this advance, else None.

        The advance's tokens start at flat position `first`.
        """
        hidden, num_tokens = self._buffers.hidden, advance.num_tokens
        is_end = advance.start + num_tokens >= spec.num_prompt_tokens
        if spec.pooling == "last":
            last = first + num_tokens - 1
            vector: NDArray[np.float32] = hidden[last].float().numpy()
            return vector if is_end else None
        row = advance.row
        if advance.start == 0:
            self._sums[row] = np.zeros(hidden.shape[1], dtype=np.float64)
        total = self._sums[row]
        for state in hidden[first : first + num_tokens].float().numpy():
            total += state
        return self._sums.pop(row) / spec.num_prompt_tokens if is_end else None
