"""The ops kind: which implementation computes norms, rotary, linears and sampling.

Every operation writes into a buffer of the step and reads its number of live rows from a
`Count`, so that a step can be recorded once and replayed with other counts. Knows tensors.
Does not know layers, models or requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.interfaces.attention import StateCache
    from octavo.interfaces.native import NativeCall
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


class Collective(ABC):
    """What the ranks of a model that is split between processes do together, each with its part.

    Every rank calls the same operations in the same order. Sums are made in the order of the
    ranks, so that all of them hold the same bits afterwards.
    """

    rank: int
    size: int

    @abstractmethod
    def all_reduce(self, x: Tensor) -> None:
        """Replace x by the sum of all ranks' x, in place."""

    @abstractmethod
    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """Set out[r] to rank r's x.  x: [...], out: [size, ...]."""


@dataclass(slots=True)
class AdapterSegment:
    """The tokens of a step that one adapter changes, and how strongly.

    `slot` is the adapter's number; tokens: int64 [n], flat and rising; scales: float32 [n, 1].
    `first` is the first token where they follow one another, None where others are between them.
    """

    slot: int
    tokens: Tensor
    scales: Tensor
    first: int | None = None


@dataclass(slots=True)
class AdapterBatch:
    """Which tokens of a step are changed by which adapters: refilled before each step.

    One object for the life of a model, so that a recorded step reads what holds by then. A token
    with several adapters is in one segment of each.
    """

    segments: list[AdapterSegment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """The outputs first .. first + len(b) of a packed weight change by `b @ a`.

    Factors are in b already.  a: float32 [rank, in], b: float32 [out, rank].
    """

    a: Tensor
    b: Tensor
    first: int


@dataclass(slots=True)
class AdapterParts:
    """All resident adapters' changes to one packed weight.

    `by_slot[s]` is what `OpSet.pack_adapter` made of those of adapter s. Entries come and go
    between steps; the object stays, so that a recorded step may hold it.
    """

    by_slot: dict[int, Any] = field(default_factory=dict)


class OpSet(ABC):
    """One implementation of the operations that architectures call.

    O1  an operation reads and writes only the first `rows.value` rows of its buffers.
    O2  results are those of the definition, as near as its activations allow. `out` may not overlap
        an input unless the docstring says "in place".
    O3  a result row depends on its own input row alone.
    O4  a block type outside `block_types` is refused with a typed error that names the tensor.
    O5  a weight is packed once, at load: later it does not matter what becomes of the file.
    O6  greedy is the first of the largest; a row with NaN or with nothing left is told as bad.
    O7  edits and filters leave exactly what they should, and nothing else is drawn.
    O8  draws have the distribution of what is left.
    O9  noise is a function of seed, position, choice and purpose.
    O10  log-probabilities, ranks and top tokens are those of the logits.
    O11  a draw depends on its own row alone.
    O12  operations that it does not have are refused with UnsupportedError.
    """

    #: names of the block types (`octavo.interfaces.weights`) that this op set multiplies
    block_types: frozenset[str] = frozenset()
    #: dtype of activations and of the logits, as torch names it
    activation_dtype: str = "float32"
    #: bytes of main memory for a packed weight, whatever the file has; None: about as many as there
    bytes_per_weight: int | None = None
    #: what keys and values are rounded to, if the attention keeps it; None: they stay activations
    cache_dtype: str | None = None
    #: False when an operation reads anything but its buffers: then steps are not replayed
    is_recordable: bool = True
    #: set by an executor that splits the model between processes, before anything is packed
    collective: Collective | None = None

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

    def decode(self, blocks: WeightBlocks) -> WeightBlocks:
        """Return the same weights as blocks of F32: for parts that begin or end inside a block."""
        del blocks
        raise self.unsupported("decode")

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

    def gelu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = gelu(gate) * up, gelu by tanh.  Shapes as in `silu_mul`."""
        del out, gate_up, rows
        raise self.unsupported("gelu_mul")

    def scale(self, x: Tensor, factor: float, rows: Count) -> None:
        """Multiply x [cap, ...] by a number, in place."""
        del x, factor, rows
        raise self.unsupported("scale")

    def soft_cap(self, x: Tensor, cap: float, rows: Count) -> None:
        """Set x = cap * tanh(x / cap), in place.  x: [cap, ...]."""
        del x, cap, rows
        raise self.unsupported("soft_cap")

    def linear_attention(  # noqa: PLR0917 - as `Attention.forward`, and the decays
        self, out: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, cache: StateCache
    ) -> None:
        """Advance a state per head, S = decay * S + k v^T, and read it: out = q S.

        q, k: [cap, heads, d_k]; v, out: [cap, heads, d_v]; decay: [heads]. The state before the
        first token of a sequence is read from the block of the position before it (zero at
        position 0); the state at the end of each block, and of the step, is left in its block.
        """
        del out, q, k, v, decay, cache
        raise self.unsupported("linear_attention")

    def pack_adapter(self, parts: Sequence[AdapterPart]) -> Any:
        """Pack one adapter's changes to one packed weight, in rising order of `first`."""
        del parts
        raise self.unsupported("adapt")

    def adapt(self, out: Tensor, x: Tensor, parts: AdapterParts, batch: AdapterBatch) -> None:
        """Add to `out` what the adapters of the batch's tokens change: out += s * b @ (a @ x).

        x: [cap, in], out: [cap, out]. A token's result depends on its own adapters alone, and a
        token in no segment keeps its bits.
        """
        del out, x, parts, batch
        raise self.unsupported("adapt")

    def all_reduce(self, x: Tensor, rows: Count) -> None:
        """Replace the live rows of x by their sums over all ranks; nothing with one rank."""
        if self.collective is not None:
            self.collective.all_reduce(x[: rows.value])

    def all_gather(self, out: Tensor, x: Tensor, rows: Count) -> None:
        """Join the ranks' columns.  x: [cap, n], out: [cap, size * n]; a copy with one rank."""
        n = rows.value
        if self.collective is None:
            out[:n] = x[:n]
            return
        if n == 0:  # on all ranks alike: a step of chunks that samples nothing
            return
        parts = x.new_empty(self.collective.size, n, x.shape[1])
        self.collective.all_gather(parts, x[:n].contiguous())
        out[:n].view(n, self.collective.size, -1).copy_(parts.transpose(0, 1))

    def native_call(self, operation: str, args: tuple[Any, ...]) -> NativeCall | None:
        """Return an operation as a call that others may join; None where it is Python's to make.

        `operation` is the name of a method of this class that writes into buffers.
        """
        del operation, args
        return None

    def unsupported(self, operation: str) -> UnsupportedError:
        """Return the error for an operation that this op set does not have."""
        return UnsupportedError(
            f"the op set {type(self).__name__} has no operation '{operation}'",
            "choose another with --ops",
        )

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
