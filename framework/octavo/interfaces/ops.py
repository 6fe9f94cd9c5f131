"""The ops kind: which implementation computes norms, rotary, linears and sampling.

Every operation writes into a buffer of the step and reads its number of live rows from a
`Count`, so that a step can be recorded once and replayed with other counts. Knows tensors.
Does not know layers, models or requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.interfaces.sampler import (
        LogprobInputs,
        LogprobOutputs,
        SamplingInputs,
        SamplingOutputs,
    )
    from octavo.interfaces.weights import WeightBlocks


class Count:
    """A number of live rows, by reference: a native kernel may read it through `cell`."""

    __slots__ = ("cell",)

    def __init__(self, value: int = 0) -> None:
        self.cell = np.array([value], dtype=np.int64)

    @property
    def value(self) -> int:
        """Return the number; assigning it changes what every holder of this count reads."""
        return int(self.cell[0])

    @value.setter
    def value(self, value: int) -> None:
        self.cell[0] = value


class OpSet(ABC):
    """One implementation of the operations that architectures call.

    O1  an operation reads and writes only the first `rows.value` rows of its buffers.
    O2  `out` may not overlap an input unless the docstring says "in place".
    O3  a result row depends on its own input row alone.
    O4  a weight is packed once, at load; a block type outside `block_types` is refused with
        a typed error that names the tensor.
    """

    #: names of the block types (`octavo.interfaces.weights`) that this op set multiplies
    block_types: frozenset[str] = frozenset()
    #: dtype of activations and of the logits, as torch names it
    activation_dtype: str = "float32"

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def pack_linear(self, blocks: Sequence[WeightBlocks]) -> Any:
        """Pack weights [out_i, in] that are concatenated along `out`; the result is opaque."""

    @abstractmethod
    def pack_embedding(self, blocks: WeightBlocks) -> Any:
        """Pack an embedding [vocab, hidden]. The result also works as the weight of `linear`."""

    @abstractmethod
    def pack_vector(self, blocks: Sequence[WeightBlocks]) -> Tensor:
        """Return vectors (norm weights, biases), concatenated, as float32 [n]."""

    @abstractmethod
    def embedding(self, out: Tensor, ids: Tensor, weight: Any, rows: Count) -> None:
        """Set out[i] = weight[ids[i]].  out: [cap, hidden], ids: int64 [cap]."""

    @abstractmethod
    def rms_norm(self, out: Tensor, x: Tensor, weight: Tensor, eps: float, rows: Count) -> None:
        """Normalise the last dimension of x [cap, ..., d]; `out` may be `x` (in place)."""

    @abstractmethod
    def add_rms_norm(  # noqa: PLR0917 - three tensors, their weight and two numbers
        self, out: Tensor, residual: Tensor, delta: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> None:
        """Add delta to residual [cap, d] in place, then set out = rms_norm(residual)."""

    @abstractmethod
    def linear(self, out: Tensor, x: Tensor, weight: Any, bias: Tensor | None, rows: Count) -> None:
        """Set out = x @ weight.T + bias.  x: [cap, in], out: [cap, out]."""

    @abstractmethod
    def rotary_table(self, config: Any, max_positions: int) -> Any:
        """Return the cos/sin table for a `octavo.interfaces.architecture.RotaryConfig`."""

    @abstractmethod
    def rotary(self, q: Tensor, k: Tensor, positions: Tensor, table: Any, rows: Count) -> None:
        """Rotate q [cap, heads, d] and k [cap, kv_heads, d] in place (strided views are fine)."""

    @abstractmethod
    def silu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = silu(gate) * up.  gate_up: [cap, 2 * f] (gate first), out: [cap, f]."""

    @abstractmethod
    def gather_rows(self, out: Tensor, x: Tensor, index: Tensor, rows: Count) -> None:
        """Set out[i] = x[index[i]].  index: int64 [cap]."""

    @abstractmethod
    def uniforms(
        self, seeds: np.ndarray, positions: np.ndarray, choices: np.ndarray, purpose: int
    ) -> np.ndarray:
        """Return noise in [0, 1), float64 [n]: a function of the four numbers of its row alone.

        seeds: uint64 [n]; positions (of the token in the output) and choices: int64 [n].
        The same numbers come from every op set.
        """

    @abstractmethod
    def sample(self, logits: Tensor, inputs: SamplingInputs) -> SamplingOutputs:
        """Edit, filter and draw one token per row of logits [rows, vocab] (may be overwritten)."""

    @abstractmethod
    def logprobs(self, logits: Tensor, inputs: LogprobInputs) -> LogprobOutputs:
        """Return log-probabilities of chosen and top tokens of logits [rows, vocab]."""
