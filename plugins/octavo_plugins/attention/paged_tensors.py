"""Attention over keys and values in plain tensors: what is the same for all kernels that do that.

Knows the attention interface and the cache's layout. Does not know any kernel over it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.attention import Attention, AttentionBatch, AttentionSpec, CacheSpec
from octavo_kernels.reference.attention import AttentionParams
from octavo_kernels.reference.attention_plan import RaggedBatch, Workspace
from octavo_kernels.reference.kv_cache import KVCache
from octavo_plugins.attention.cache_options import TensorAttentionOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class PagedTensorAttention(Attention):
    """Hands the live part of each batch to kernels.

    The cache is [num_blocks, block_size, kv_heads, head_dim].
    """

    Options = TensorAttentionOptions

    #: where the cache lies
    device: torch.device | str = "cpu"
    #: (cache, k, v, slots): stores k, v [n, kv_heads, head_dim] at slots [n]
    write_kv: Callable[[KVCache, Tensor, Tensor, Tensor], None]
    #: (out, q, cache, plan, params): attends with q [n, heads, head_dim] into out
    paged_attention: Callable[[Tensor, Tensor, KVCache, Any, AttentionParams], None]

    #: the name of this component
    name: str

    def __init__(self, options: TensorAttentionOptions | None = None) -> None:
        super().__init__(options)
        self.workspace = Workspace()
        self._asked_dtype = "auto" if options is None else options.cache_dtype

    @abstractmethod
    def dtypes(self) -> tuple[str, ...]:
        """Return the dtypes that a cache can have here."""

    def why_not_others(self) -> str:
        """Return why there are no other dtypes, where that needs saying."""
        return ""

    def cache_dtype(self, spec: CacheSpec) -> torch.dtype:
        """Return the dtype of a layer's cache. Raises UnsupportedError for one it cannot have."""
        if spec.dtype not in self.dtypes():
            raise UnsupportedError(
                f"the {self.name} attention cannot keep a cache of dtype '{spec.dtype}'",
                f"dtypes it takes: {', '.join(self.dtypes())}",
                self.why_not_others(),
            )
        if self._asked_dtype not in {"auto", spec.dtype}:
            raise UnsupportedError(
                f"the {self.name} attention cannot keep a cache of dtype '{self._asked_dtype}' "
                f"beside activations of dtype '{spec.dtype}'",
                f"leave cache-dtype at 'auto', or set dtype to '{self._asked_dtype}'",
                "attention 'cpu' keeps others: float32, float16, int8, int4",
            )
        dtype: torch.dtype = getattr(torch, spec.dtype)
        return dtype

    @abstractmethod
    def plan(self, batch: RaggedBatch) -> Any:
        """Return what `paged_attention` needs of a step, for all its layers."""

    def bytes_per_block(self, spec: CacheSpec, block_size: int) -> int:
        """Return the bytes of the keys and values of `block_size` tokens."""
        elements = block_size * spec.num_kv_heads * spec.head_dim
        return 2 * elements * self.cache_dtype(spec).itemsize

    def allocate(self, spec: CacheSpec, num_blocks: int, block_size: int) -> KVCache:
        """Return the cache of one layer."""
        shape = (num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
        return KVCache.empty(shape, self.cache_dtype(spec), self.device)

    def prepare(self, batch: AttentionBatch) -> None:
        """Plan the step; the work is dealt out once for each window that layers use."""
        num_seqs = batch.num_seqs.value
        ragged = RaggedBatch(
            batch.query_start[: num_seqs + 1],
            batch.seq_lens[:num_seqs],
            batch.block_tables[:num_seqs],
            batch.block_size,
        )
        batch.prepared = self.plan(ragged)

    def write(self, cache: KVCache, k: Tensor, v: Tensor, batch: AttentionBatch) -> None:
        """Store the keys and values of the batch's tokens."""
        n = batch.num_tokens.value
        self.write_kv(cache, k[:n], v[:n], batch.slots[:n])

    def forward(
        self, out: Tensor, q: Tensor, cache: KVCache, spec: AttentionSpec, batch: AttentionBatch
    ) -> None:
        """Attend with the batch's queries."""
        n = batch.num_tokens.value
        params = AttentionParams(spec.scale, spec.window, spec.softcap)
        self.paged_attention(out[:n], q[:n], cache, batch.prepared, params)
