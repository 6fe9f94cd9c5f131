"""Paged attention of the CPU kernels: caches, and the calls that write and read them.

A cache is pages of a layout that the kernels alone know (kv_cache.h). Knows tensors, and the
arguments of the kernels. Does not know layers, requests or how blocks are handed out.
"""

from __future__ import annotations

from ctypes import c_int64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from octavo_kernels.cpu.calls import Attention, WriteKv
from octavo_kernels.cpu.library import Call
from octavo_kernels.cpu.memory import huge_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from octavo_kernels.cpu.library import Library
    from octavo_kernels.reference.attention import AttentionParams

#: what numbers a cache may hold, in the order of CacheFormat in kv_cache.h
CACHE_DTYPES: Final = ("float32", "float16", "int8", "int4")
# Room for what tiles leave that several threads share; none of it is touched unless they do.
_PARTS_FLOATS: Final = 8 << 20
_FLOAT_BYTES: Final = 4
# Stands for "no window": more than any position.
_NO_WINDOW: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one layer keeps of a token, and how many tokens make a block."""

    kv_heads: int
    head_dim: int
    block_size: int
    dtype: str

    @property
    def format(self) -> int:
        """Return the number by which the kernels know the dtype."""
        return CACHE_DTYPES.index(self.dtype)

    def page_bytes(self, library: Library) -> int:
        """Return the bytes of one block and key head."""
        size: int = library.function("octavo_page_bytes")(
            c_int64(self.head_dim), c_int64(self.block_size), c_int64(self.format)
        )
        return size

    def block_bytes(self, library: Library) -> int:
        """Return the bytes of one block."""
        return self.kv_heads * self.page_bytes(library)


@dataclass(frozen=True, slots=True)
class PagedCache:
    """The keys and values of one layer: pages uint8 [num_blocks, kv_heads, bytes of a page]."""

    shape: CacheShape
    pages: NDArray[np.uint8]

    @classmethod
    def empty(cls, library: Library, shape: CacheShape, num_blocks: int) -> PagedCache:
        """Allocate a cache; pages of it take memory only once they are written."""
        page_bytes = shape.page_bytes(library)
        memory = huge_bytes(num_blocks * shape.kv_heads * page_bytes)
        return cls(shape, memory.reshape(num_blocks, shape.kv_heads, page_bytes))


@dataclass(frozen=True, slots=True)
class BatchBuffers:
    """The ragged batch of a step, read when a call runs.

    num_seqs, num_tokens: int64 [1]. Sequence i has queries query_start[i] .. query_start[i + 1]
    (int64), the last at seq_lens[i] - 1 (int64), and the blocks block_tables[i] (int32 [max_seqs,
    max_blocks], rows contiguous). Token j is stored at slots[j] (int64).
    """

    num_seqs: NDArray[np.int64]
    num_tokens: NDArray[np.int64]
    query_start: Tensor
    seq_lens: Tensor
    block_tables: Tensor
    slots: Tensor


def write_call(cache: PagedCache, k: Tensor, v: Tensor, batch: BatchBuffers) -> Call:
    """Return the call that stores k, v [>= tokens, kv_heads, head_dim], float32 (strided views)."""
    _want_float32(k, v)
    shape = cache.shape
    arguments = WriteKv(
        pages=cache.pages.ctypes.data,
        k=k.data_ptr(),
        v=v.data_ptr(),
        slots=batch.slots.data_ptr(),
        tokens=batch.num_tokens.ctypes.data,
        k_stride=k.stride(0),
        k_head_stride=k.stride(1),
        v_stride=v.stride(0),
        v_head_stride=v.stride(1),
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        block_size=shape.block_size,
        format=shape.format,
    )
    return Call("write_kv", arguments, (cache, k, v, batch))


def attention_call(
    out: Tensor, q: Tensor, cache: PagedCache, batch: BatchBuffers, params: AttentionParams
) -> Call:
    """Return the call that attends with q [>= tokens, heads, head_dim] into out, both float32.

    Strided views are fine. Query heads g * (heads / kv_heads) and following read key head g. The
    bits of a token's result depend on its sequence alone: not on the batch, chunks or threads.
    """
    _want_float32(out, q)
    shape = cache.shape
    arguments = Attention(
        out=out.data_ptr(),
        q=q.data_ptr(),
        pages=cache.pages.ctypes.data,
        sequences=batch.num_seqs.ctypes.data,
        query_start=batch.query_start.data_ptr(),
        seq_lens=batch.seq_lens.data_ptr(),
        block_tables=batch.block_tables.data_ptr(),
        out_stride=out.stride(0),
        out_head_stride=out.stride(1),
        q_stride=q.stride(0),
        q_head_stride=q.stride(1),
        table_stride=batch.block_tables.stride(0),
        heads=q.shape[1],
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        block_size=shape.block_size,
        format=shape.format,
        window=_NO_WINDOW if params.window is None else params.window,
        parts_floats=_PARTS_FLOATS,
        scale=params.scale,
        softcap=params.softcap or 0.0,
    )
    return Call("attention", arguments, (out, q, cache, batch), _PARTS_FLOATS * _FLOAT_BYTES)


def _want_float32(*tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype != torch.float32 or tensor.stride(-1) != 1:
            raise ValueError(
                f"the CPU kernels attend over float32 with contiguous heads, not {tensor.dtype}"
                f" with strides {tensor.stride()}"
            )
