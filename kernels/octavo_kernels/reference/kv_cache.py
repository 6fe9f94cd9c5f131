"""The paged cache of keys and values of one layer, in plain torch.

Knows blocks and slots (slot = block * block_size + offset). Does not know who owns which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor


_CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values of one layer, each [num_blocks, block_size, kv_heads, head_dim]."""

    k: Tensor
    v: Tensor

    @classmethod
    def empty(
        cls, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device | str
    ) -> KVCache:
        """Allocate a cache; pages of it take memory only once they are written."""
        return cls(_zeros(shape, dtype, device), _zeros(shape, dtype, device))

    def rows(self, tensor: Tensor) -> Tensor:
        """View `k` or `v` as one row per slot: [slots, kv_heads * head_dim]."""
        return tensor.view(tensor.shape[0] * tensor.shape[1], -1)

    def head_rows(self, tensor: Tensor) -> Tensor:
        """View `k` or `v` as one row per slot and head: [slots * kv_heads, head_dim]."""
        return tensor.view(-1, tensor.shape[-1])


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return zeros, aligned to cache lines.

    On a CPU `torch.zeros` writes every page, which takes 0.7 s a GiB; the system's zeroed pages
    are there at once.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    buffer = np.zeros(num_bytes + _CACHE_LINE_BYTES, np.uint8)
    start = -buffer.ctypes.data % _CACHE_LINE_BYTES
    return torch.from_numpy(buffer[start : start + num_bytes]).view(dtype).view(shape)


def write_kv(cache: KVCache, k: Tensor, v: Tensor, slots: Tensor) -> None:
    """Store k, v [n, kv_heads, head_dim] (strided views are fine) at slots [n], int64, distinct."""
    shape = (-1, *k.shape[1:])
    cache.k.view(shape).index_copy_(0, slots, k)
    cache.v.view(shape).index_copy_(0, slots, v)
