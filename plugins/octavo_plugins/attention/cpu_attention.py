"""The `cpu` attention: kernels in C++ over pages of keys and values, also of eight or four bits.

Knows the attention interface and the kernels' calls. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import UnsupportedError
from octavo.interfaces.attention import Attention, AttentionBatch, AttentionSpec, CacheSpec
from octavo_kernels.cpu.attention import (
    CACHE_DTYPES,
    BatchBuffers,
    CacheShape,
    PagedCache,
    attention_call,
    write_call,
)
from octavo_kernels.reference.attention import AttentionParams
from octavo_plugins.attention.cache_options import CpuAttentionOptions
from octavo_plugins.native.cpu_calls import CpuCall, load_library

if TYPE_CHECKING:
    from torch import Tensor

    from octavo_kernels.cpu.library import Call


class CpuAttention(Attention):
    """Attention by the CPU kernels.

    A token's bits depend on its sequence alone: not on the batch, the chunk, prefix hits or the
    number of threads. Raises UnsupportedError where the kernels cannot be compiled.
    """

    Options = CpuAttentionOptions

    cache_dtypes = frozenset(CACHE_DTYPES)

    def __init__(self, options: CpuAttentionOptions | None = None) -> None:
        super().__init__(options)
        self._library = load_library()
        self._cache_dtype = "auto" if options is None else options.cache_dtype

    def native_call(self, operation: str, args: tuple[Any, ...]) -> CpuCall:
        """Return an operation as kernel calls."""
        make = {"prepare": _prepare_calls, "write": _write_calls, "forward": _forward_calls}
        return CpuCall(self._library, make[operation](*args))

    def bytes_per_block(self, spec: CacheSpec, block_size: int) -> int:
        """Return the bytes that one block of one layer takes."""
        return self._shape(spec, block_size).block_bytes(self._library)

    def allocate(self, spec: CacheSpec, num_blocks: int, block_size: int) -> PagedCache:
        """Return the cache of one layer."""
        return PagedCache.empty(self._library, self._shape(spec, block_size), num_blocks)

    def _shape(self, spec: CacheSpec, block_size: int) -> CacheShape:
        dtype = spec.dtype if self._cache_dtype == "auto" else self._cache_dtype
        if dtype not in CACHE_DTYPES:
            raise UnsupportedError(
                f"the cpu attention cannot keep a cache of dtype '{dtype}'",
                f"dtypes it takes: {', '.join(CACHE_DTYPES)}",
            )
        return CacheShape(spec.num_kv_heads, spec.head_dim, block_size, dtype)

    def prepare(self, batch: AttentionBatch) -> None:
        """Do nothing: each call deals out its work, from counts and lengths, in microseconds."""

    def write(self, cache: PagedCache, k: Tensor, v: Tensor, batch: AttentionBatch) -> None:
        """Store the keys and values of the batch's tokens."""
        self.native_call("write", (cache, k, v, batch)).make()

    def forward(
        self, out: Tensor, q: Tensor, cache: PagedCache, spec: AttentionSpec, batch: AttentionBatch
    ) -> None:
        """Attend with the batch's queries."""
        self.native_call("forward", (out, q, cache, spec, batch)).make()


def _prepare_calls(batch: AttentionBatch) -> tuple[Call, ...]:
    del batch
    return ()


def _write_calls(
    cache: PagedCache, k: Tensor, v: Tensor, batch: AttentionBatch
) -> tuple[Call, ...]:
    return (write_call(cache, k, v, _buffers(batch)),)


def _forward_calls(
    out: Tensor, q: Tensor, cache: PagedCache, spec: AttentionSpec, batch: AttentionBatch
) -> tuple[Call, ...]:
    params = AttentionParams(spec.scale, spec.window, spec.softcap)
    return (attention_call(out, q, cache, _buffers(batch), params),)


def _buffers(batch: AttentionBatch) -> BatchBuffers:
    return BatchBuffers(
        batch.num_seqs.cell,
        batch.num_tokens.cell,
        batch.query_start,
        batch.seq_lens,
        batch.block_tables,
        batch.slots,
    )
