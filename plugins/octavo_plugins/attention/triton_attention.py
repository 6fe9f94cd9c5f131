"""The `triton` attention: keys and values in plain tensors, Triton kernels over them.

Knows the attention interface and the Triton kernels. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.attention import Attention, AttentionBatch, AttentionSpec, CacheSpec
from octavo_kernels.reference.attention import AttentionParams
from octavo_kernels.reference.attention_plan import RaggedBatch, Workspace
from octavo_kernels.reference.kv_cache import KVCache
from octavo_kernels.triton.attention import num_programs_for, paged_attention, write_kv
from octavo_kernels.triton.attention_plan import TritonPlan
from octavo_kernels.triton.devices import (
    HOW_TO_INTERPRET,
    device_name,
    is_interpreted,
    why_not,
)

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES: Final = ("float32", "float16", "bfloat16")
# The interpreter's products of bfloat16 are wrong (Triton 3.9).
_INTERPRETED_DTYPES: Final = ("float32", "float16")


class TritonAttention(Attention):
    """Attention by Triton; the cache is [num_blocks, block_size, kv_heads, head_dim].

    A token's bits depend on its sequence alone: not on the batch, the chunk or prefix hits.
    Raises UnsupportedError where Triton can run nothing.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if reasons := why_not():
            raise UnsupportedError(
                "the attention 'triton' cannot run here", *reasons, HOW_TO_INTERPRET
            )
        self._device = torch.device(device_name())
        self._num_programs = num_programs_for(self._device)
        self._workspace = Workspace()

    def bytes_per_block(self, spec: CacheSpec, block_size: int) -> int:
        """Return the bytes of the keys and values of `block_size` tokens."""
        elements = block_size * spec.num_kv_heads * spec.head_dim
        return 2 * elements * _dtype(spec).itemsize

    def allocate(self, spec: CacheSpec, num_blocks: int, block_size: int) -> KVCache:
        """Return the cache of one layer."""
        shape = (num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
        return KVCache.empty(shape, _dtype(spec), self._device)

    def prepare(self, batch: AttentionBatch) -> None:
        """Note the lengths; the work is dealt out once for each window that layers use."""
        num_seqs = batch.num_seqs.value
        ragged = RaggedBatch(
            batch.query_start[: num_seqs + 1],
            batch.seq_lens[:num_seqs],
            batch.block_tables[:num_seqs],
            batch.block_size,
        )
        batch.prepared = TritonPlan(ragged, self._num_programs, self._workspace)

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
    known = _INTERPRETED_DTYPES if is_interpreted() else _DTYPES
    if spec.dtype not in known:
        raise UnsupportedError(
            f"the triton attention cannot keep a cache of dtype '{spec.dtype}'",
            f"dtypes it takes: {', '.join(known)}",
            "the interpreter's products of bfloat16 are wrong" if is_interpreted() else "",
        )
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype
