"""What every row's draw depends on, as arrays: one number for each row of the batch.

Knows parameters and noise. Does not know logits, nor what is edited before a draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octavo.interfaces.sampler import SamplingInputs

if TYPE_CHECKING:
    from octavo.engine.plan import RowSpec
    from octavo.interfaces.ops import OpSet

#: what the noise is for: the counter's last number
PURPOSE_SAMPLE = 0
#: seeds are taken modulo 2**64
UINT64 = (1 << 64) - 1
_INT32_MAX = 2**31 - 1


class SamplingColumns:
    """Temperature, truncation and seeds of `max_rows` rows."""

    def __init__(self, max_rows: int) -> None:
        self._temperature = np.zeros(max_rows, dtype=np.float32)
        self._top_k = np.zeros(max_rows, dtype=np.int32)
        self._top_p = np.ones(max_rows, dtype=np.float64)
        self._min_p = np.zeros(max_rows, dtype=np.float64)
        self._seeds = np.zeros(max_rows, dtype=np.uint64)
        self._choices = np.zeros(max_rows, dtype=np.int64)

    def start(self, row: int, spec: RowSpec) -> None:
        """Fill a row."""
        params = spec.params
        self._temperature[row] = params.temperature
        self._top_k[row] = min(params.top_k, _INT32_MAX)  # as good as off, and fits its cell
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._seeds[row] = spec.seed & UINT64
        self._choices[row] = spec.choice

    def inputs(self, ops: OpSet, rows: np.ndarray, positions: np.ndarray) -> SamplingInputs:
        """Return what a draw for each of `rows` needs; edits are the caller's to add.

        rows: int64 [n], rows of the batch; positions: int64 [n], of the tokens in the outputs.
        """
        return SamplingInputs(
            temperature=self._temperature[rows],
            top_k=self._top_k[rows],
            top_p=self._top_p[rows],
            min_p=self._min_p[rows],
            uniforms=ops.uniforms(
                self._seeds[rows], positions, self._choices[rows], PURPOSE_SAMPLE
            ),
        )
