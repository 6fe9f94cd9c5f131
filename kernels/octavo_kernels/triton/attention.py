"""Launches the Triton kernels for attention over paged keys and values.

Knows tensors and their shapes. Does not know layers, requests or how blocks are handed out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from octavo_kernels.triton.arguments import (
    AttentionShape,
    Numbers,
    PagedKeys,
    RowShape,
    Work,
    power_of_two,
    rows_of,
)
from octavo_kernels.triton.attention_plan import NO_WINDOW, PROGRAMS_PER_PROCESSOR, Tiles
from octavo_kernels.triton.devices import kernels_for

if TYPE_CHECKING:
    from torch import Tensor

    from octavo_kernels.reference.attention import AttentionParams
    from octavo_kernels.reference.attention_plan import Workspace
    from octavo_kernels.reference.kv_cache import KVCache
    from octavo_kernels.triton.attention_plan import TritonPlan, WorkList

# Products of 16-bit numbers need 16 terms at least.
_SMALLEST_DIM: Final = 16
_LOG2_E: Final = math.log2(math.e)
_OPTIONS: Final = {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": False}
# Sums of this many elements, twice, leave four warps no registers.
_LARGE_TILE: Final = 8192


def paged_attention(
    out: Tensor,
    q: Tensor,
    cache: KVCache,
    plan: TritonPlan,
    params: AttentionParams,
    *,
    tiles: Tiles | None = None,
) -> None:
    """Attend with q [n, heads, d] over `cache`, into out [n, heads, d] (strided views are fine).

    As `octavo_kernels.reference.attention.paged_attention`, in float32, float16 or bfloat16; sums
    are in float32. The bits of a query's result depend on its sequence and on `tiles` alone.
    """
    kernels = kernels_for(q, "attention_kernels")
    shape = _shape(q, cache, params, tiles)
    window = NO_WINDOW if params.window is None else params.window
    used = Tiles(shape.rows, shape.keys, shape.piece)
    work = plan.work_for(window, used, shape.ratio, shape.kv_heads)
    if not len(work.items):
        return
    tables = plan.batch.block_tables
    paged = PagedKeys(cache.k, cache.v, tables, tables.stride(0))
    memory = _memory(work, plan.workspace, shape, q.device)
    options = dict(_OPTIONS)
    if shape.rows * shape.padded_dim >= _LARGE_TILE:
        options["num_warps"] = 8
    kernels.attend[len(work.items), shape.kv_heads](
        rows_of(out), rows_of(q), paged, memory, _numbers(params, window), shape, **options
    )
    if len(work.merges):
        kernels.merge[len(work.merges), shape.kv_heads](rows_of(out), memory, shape, **_OPTIONS)


def write_kv(cache: KVCache, k: Tensor, v: Tensor, slots: Tensor) -> None:
    """Store k, v [n, kv_heads, head_dim] (strided views are fine) at slots [n], int64, distinct."""
    if not len(slots):
        return
    kernels = kernels_for(k, "attention_kernels")
    heads, dim = k.shape[1:]
    shape = RowShape(dim, power_of_two(heads * dim), heads)
    paged = PagedKeys(cache.k, cache.v, slots, 0)
    kernels.write[(len(slots),)](paged, rows_of(k), rows_of(v), slots, shape, **_OPTIONS)


def num_programs_for(device: torch.device) -> int:
    """Return how many programs keep a device busy; 1 for the interpreter, which runs one."""
    if device.type == "cpu":
        return 1
    return PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


def _shape(
    q: Tensor, cache: KVCache, params: AttentionParams, tiles: Tiles | None
) -> AttentionShape:
    _, block_size, kv_heads, dim = cache.k.shape
    ratio = q.shape[1] // kv_heads
    tiles = tiles or Tiles.for_layer(ratio, dim, q.dtype)
    return AttentionShape(
        ratio=ratio,
        padded_ratio=power_of_two(ratio),
        kv_heads=kv_heads,
        head_dim=dim,
        padded_dim=max(_SMALLEST_DIM, power_of_two(dim)),
        block_size=block_size,
        rows=tiles.rows,
        keys=tiles.keys,
        piece=tiles.piece,
        has_cap=params.softcap is not None,
    )


def _memory(
    work: WorkList, workspace: Workspace, shape: AttentionShape, device: torch.device
) -> Work:
    """Return the work with room for its parts; no part has rows of its own where none is left."""
    rows = max(1, work.num_parts * shape.kv_heads * shape.ratio)
    sums = workspace.take("sums of parts", (rows, shape.head_dim), torch.float32, device)
    stats = workspace.take("stats of parts", (rows, 2), torch.float32, device)
    return Work(work.items, work.merges, sums, stats)


def _numbers(params: AttentionParams, window: int) -> Numbers:
    """Return the numbers of a layer in powers of two: exp(x) is 2 ** (x * log2 e)."""
    if params.softcap is None:
        return Numbers(params.scale * _LOG2_E, 0.0, window)
    return Numbers(params.scale / params.softcap, params.softcap * _LOG2_E, window)
