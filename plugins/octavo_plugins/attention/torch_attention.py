"""The `torch` attention: keys and values in plain tensors, the reference kernels over them.

Knows the attention interface and the reference kernels. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.attention import Attention, AttentionBatch, AttentionSpec, CacheSpec
from octavo_kernels.reference.attention import AttentionParams, paged_attention
from octavo_kernels.reference.attention_plan import AttentionPlan, RaggedBatch, Workspace
from octavo_kernels.reference.kv_cache import KVCache, write_kv

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES = ("float32", "float64", "float16", "bfloat16")


class TorchAttention(Attention):
    """Attention by torch operations; the cache is [num_blocks, block_size, kv_heads, head_dim]."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._workspace = Workspace()

    def bytes_per_block(self, spec: CacheSpec, block_size: int) -> int:
        """Return the bytes of the keys and values of `block_size` tokens."""
        elements = block_size * spec.num_kv_heads * spec.head_dim
        return 2 * elements * _dtype(spec).itemsize

    def allocate(self, spec: CacheSpec, num_blocks: int, block_size: int) -> KVCache:
        """Return the cache of one layer."""
        shape = (num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
        return KVCache.empty(shape, _dtype(spec), "cpu")

    def prepare(self, batch: AttentionBatch) -> None:
        """Note who reads which slots; worked out once for each window that layers use."""
        num_seqs = batch.num_seqs.value
        ragged = RaggedBatch(
            batch.query_start[: num_seqs + 1],
            batch.seq_lens[:num_seqs],
            batch.block_tables[:num_seqs],
            batch.block_size,
        )
        batch.prepared = AttentionPlan(ragged, self._workspace)

    def write(self, cache: KVCache, k: Tensor, v: Tensor, batch: AttentionBatch) -> None:
        """Store the keys and values of the batch's tokens."""
        n = batch.num_tokens.value
        write_kv(cache, k[:n], v[:n], batch.slots[:n])

    def forward(
        self, out: Tensor, q: Tensor, cache: KVCache, spec: AttentionSpec, batch: AttentionBatch
    ) -> None:
        """Attend with the batch's queries."""
        n = batch.num_tokens.value
        params = AttentionParams(spec.scale, spec.window, spec.softcap)
        paged_attention(out[:n], q[:n], cache, batch.prepared, params)


def _dtype(spec: CacheSpec) -> torch.dtype:
    if spec.dtype not in _DTYPES:
        raise UnsupportedError(
            f"the torch attention cannot keep a cache of dtype '{spec.dtype}'",
            f"dtypes it takes: {', '.join(_DTYPES)}",
        )
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype
