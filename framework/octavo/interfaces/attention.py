"""The attention kind: attention over blocks, and the layout of the cache.

Knows queries, caches and block tables. Does not know requests, weights or policies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.interfaces.native import NativeCall
    from octavo.interfaces.ops import Count


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What one layer keeps per token.

    `reach`: how many positions before its own a token still reads; None = all. Layers of equal
    reach share one group of blocks, whose blocks are freed once no token can read them.
    """

    num_kv_heads: int
    head_dim: int
    dtype: str = "float32"
    reach: int | None = None


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A layer that keeps one state of a fixed size, however long the sequence.

    A block holds the state as it is after the block's last token so far: it is read by the token
    that follows and by no other.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def reach(self) -> int:
        """Return 1: the position before."""
        return 1


@dataclass(slots=True)
class StateCache:
    """The states of one layer, by block, and the batch that they are read and written for."""

    states: Tensor  # [num_blocks, *shape]
    batch: AttentionBatch


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """How one layer attends. `window`: number of positions seen, itself included; None = all."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None


@dataclass(slots=True)
class AttentionBatch:
    """The ragged batch of a step for one group of layers, in persistent buffers.

    Live sizes are in the counts. Groups share everything but tables, slots and `prepared`; in a
    group whose layers do not see all positions, entries that are out of reach are 0 or stale, and
    what a stale one names may belong to another sequence by now.

    Sequence i owns the flat tokens query_start[i] .. query_start[i + 1]; its last query stands
    at position seq_lens[i] - 1, and block_tables[i] holds its blocks. `prepared` belongs to the
    attention component.
    """

    num_seqs: Count
    num_tokens: Count
    query_start: Tensor  # int64 [max_seqs + 1]
    seq_lens: Tensor  # int64 [max_seqs], counting this step's tokens
    block_tables: Tensor  # int32 [max_seqs, max_blocks], 0 = the null block
    positions: Tensor  # int64 [max_tokens]
    slots: Tensor  # int64 [max_tokens] = block * block_size + offset
    block_size: int
    prepared: Any = None


class Attention(ABC):
    """Attention over paged KV.

    T1  parity with the float64 oracle over ragged lengths, GQA ratios, windows and soft caps.
    T2  permuting the physical blocks changes nothing.
    T3  slots that the batch does not own are never read (NaN there does no harm).
    T4  one shot = any chunking.
    T5  `write` changes the slots of the batch and nothing else.
    T6  rows beyond the counts are not written; a step of nothing is fine.
    T7  `bytes_per_block` is what a block takes.
    T8  a dtype that a cache cannot have is refused with UnsupportedError.
    """

    #: False when an operation reads anything but its buffers: then steps are not replayed
    is_recordable: bool = True
    #: what it keeps keys and values as, beside the dtype of the activations
    cache_dtypes: frozenset[str] = frozenset()

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def native_call(self, operation: str, args: tuple[Any, ...]) -> NativeCall | None:
        """Return an operation as a call that others may join; None where it is Python's to make.

        `operation` is `prepare`, `write` or `forward`.
        """
        del operation, args
        return None

    @abstractmethod
    def bytes_per_block(self, spec: CacheSpec, block_size: int) -> int:
        """Return the bytes that one block of one layer takes."""

    @abstractmethod
    def allocate(self, spec: CacheSpec, num_blocks: int, block_size: int) -> Any:
        """Return the cache of one layer; its layout is this component's own."""

    @abstractmethod
    def prepare(self, batch: AttentionBatch) -> None:
        """Do what is common to all layers of a step, once, into `batch.prepared`."""

    @abstractmethod
    def write(self, cache: Any, k: Tensor, v: Tensor, batch: AttentionBatch) -> None:
        """Store k, v [cap, kv_heads, head_dim] of the batch's tokens at `batch.slots`."""

    @abstractmethod
    def forward(
        self, out: Tensor, q: Tensor, cache: Any, spec: AttentionSpec, batch: AttentionBatch
    ) -> None:
        """Attend: q, out: [cap, heads, head_dim]. Keys of this step are already written."""
