"""Attention over paged keys and values, in plain torch: the fast path, and a naive oracle.

Both are causal by position, see a window of positions if asked, cap scores softly if asked, and
serve several query heads with one key head without repeating it. Knows tensors, slots and
positions. Does not know layers, requests or how blocks are handed out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's documentation calls it so

from octavo_kernels.reference.activation import soft_cap
from octavo_kernels.reference.attention_plan import HeadShape

if TYPE_CHECKING:
    from torch import Tensor

    from octavo_kernels.reference.attention_plan import (
        AttentionPlan,
        Chunk,
        DecodeGroup,
        DecodeScratch,
        RaggedBatch,
        WindowPlan,
        Workspace,
    )
    from octavo_kernels.reference.kv_cache import KVCache

# Queries of a tile of a chunk: bounds the mask (tile x keys) and skips keys behind the diagonal.
_TILE_QUERIES: Final = 256
# Scores of a tile where they are made explicitly (soft caps), in elements.
_TILE_SCORES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """`window`: number of positions seen, its own included; `softcap`: cap * tanh(score / cap)."""

    scale: float
    window: int | None = None
    softcap: float | None = None


def paged_attention(
    out: Tensor, q: Tensor, cache: KVCache, plan: AttentionPlan, params: AttentionParams
) -> None:
    """Attend with q [n, heads, d] over `cache`, into out [n, heads, d] (strided views are fine).

    The keys and values of the queries themselves are in the cache already. Query heads
    g * (heads / kv_heads) and following read key head g. Slots that no sequence of the plan owns
    are not read. Memory beyond the plan's workspace is bounded by a tile.
    """
    window_plan = plan.for_window(params.window)
    for group in window_plan.groups:
        _decode(out, q, cache, group, params=params, workspace=plan.workspace)
    for chunk in window_plan.chunks:
        k, v = _gather(cache, chunk, plan.workspace)
        if params.softcap is None:
            _attend_fused(out, q, (k, v), chunk, params=params, plan=window_plan)
        else:
            _attend_explicit(out, q, (k, v), chunk, params)


def _decode(
    out: Tensor,
    q: Tensor,
    cache: KVCache,
    group: DecodeGroup,
    *,
    params: AttentionParams,
    workspace: Workspace,
) -> None:
    heads, dim = q.shape[1:]
    shape = HeadShape(heads, cache.k.shape[2], dim, q.dtype)
    scratch = group.scratch(shape, workspace)
    scores = scratch.scores
    torch.index_select(cache.head_rows(cache.k), 0, scratch.rows, out=scratch.keys)
    queries = q[group.queries].reshape(scores.shape[0], -1, dim)
    scores.baddbmm_(queries, scratch.keys_by_head, beta=0, alpha=params.scale)
    _cap(scores, params.softcap)
    if group.mask is not None:
        scratch.scores_by_sequence.masked_fill_(group.mask, -math.inf)
    torch.softmax(scores, -1, out=scores)
    out[group.queries] = _weighted_values(cache, scratch).view(-1, heads, dim)


def _weighted_values(cache: KVCache, scratch: DecodeScratch) -> Tensor:
    """Return the sums of values weighted by the scores, [s * heads, d] or alike."""
    values = cache.head_rows(cache.v)
    weights = scratch.scores
    if values.device.type == "cpu" and values.dtype == torch.float32:
        # sums rows where they lie: half the traffic of gathering them first
        rows, offsets = scratch.bags
        return torch.embedding_bag(values, rows, offsets, False, 0, False, weights.view(-1))[0]  # noqa: FBT003
    gathered = values[scratch.rows].view(weights.shape[0], weights.shape[2], -1)
    return torch.bmm(weights, gathered)


def _gather(cache: KVCache, chunk: Chunk, workspace: Workspace) -> tuple[Tensor, Tensor]:
    """Return the keys and values of a chunk's sequence, [kv_heads, t, d] each."""
    kv_heads, dim = cache.k.shape[2:]
    gathered = []
    for name, tensor in (("keys", cache.k), ("values", cache.v)):
        shape = (chunk.slots.numel(), kv_heads * dim)
        rows = workspace.take(name, shape, tensor.dtype, tensor.device)
        torch.index_select(cache.rows(tensor), 0, chunk.slots, out=rows)
        gathered.append(rows.view(-1, kv_heads, dim).transpose(0, 1))
    return gathered[0], gathered[1]


def _attend_fused(
    out: Tensor,
    q: Tensor,
    kv: tuple[Tensor, Tensor],
    chunk: Chunk,
    *,
    params: AttentionParams,
    plan: WindowPlan,
) -> None:
    """Attend with all queries of a chunk, by torch's fused kernel."""
    kv_heads = kv[0].shape[0]
    ratio = q.shape[1] // kv_heads
    # the query heads of a key head stand in the batch dimension, where keys repeat by stride 0
    queries = _grouped(q, chunk, kv_heads)  # [ratio, kv_heads, n, d]
    results = _grouped(out, chunk, kv_heads)
    keys, values = (tensor.expand(ratio, -1, -1, -1) for tensor in kv)
    length = chunk.stop - chunk.start
    if chunk.first_query == 0 and (params.window is None or params.window >= length):
        results.copy_(
            F.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, scale=params.scale
            )
        )
        return
    for start in range(0, length, _TILE_QUERIES):
        tile = queries[:, :, start : start + _TILE_QUERIES]
        low, high = _visible(chunk, start, tile.shape[2], params.window)
        mask = _band_mask(plan, tile, high - low, params.window)
        results[:, :, start : start + _TILE_QUERIES] = F.scaled_dot_product_attention(
            tile,
            keys[:, :, low:high],
            values[:, :, low:high],
            attn_mask=mask,
            scale=params.scale,
        )


def _attend_explicit(
    out: Tensor, q: Tensor, kv: tuple[Tensor, Tensor], chunk: Chunk, params: AttentionParams
) -> None:
    """Attend with all queries of a chunk, scores made explicitly so that they can be capped."""
    keys, values = kv
    queries, results = _grouped(q, chunk, keys.shape[0]), _grouped(out, chunk, keys.shape[0])
    per_query = max(1, q.shape[1] * keys.shape[1])
    tile_queries = min(_TILE_QUERIES, max(1, _TILE_SCORES // per_query))
    for start in range(0, chunk.stop - chunk.start, tile_queries):
        tile = queries[:, :, start : start + tile_queries]
        low, high = _visible(chunk, start, tile.shape[2], params.window)
        scores = torch.matmul(tile, keys[:, low:high].transpose(1, 2)).mul_(params.scale)
        _cap(scores, params.softcap)
        first = chunk.first_query + start
        rows = torch.arange(first, first + tile.shape[2], device=q.device)
        columns = torch.arange(chunk.first_key + low, chunk.first_key + high, device=q.device)
        scores.masked_fill_(~_is_visible(rows, columns, params.window), -math.inf)
        weights = torch.softmax(scores, -1)
        results[:, :, start : start + tile_queries] = torch.matmul(weights, values[:, low:high])


def _cap(scores: Tensor, softcap: float | None) -> None:
    if softcap is not None:
        soft_cap(scores, softcap)


def _grouped(x: Tensor, chunk: Chunk, kv_heads: int) -> Tensor:
    """View a chunk's rows of x [n, heads, d] as [ratio, kv_heads, rows, d]."""
    rows = x[chunk.start : chunk.stop]
    return rows.view(rows.shape[0], kv_heads, -1, rows.shape[2]).permute(2, 1, 0, 3)


def _visible(chunk: Chunk, start: int, count: int, window: int | None) -> tuple[int, int]:
    """Return which gathered keys any of `count` queries from `start` on sees: low .. high."""
    first = chunk.first_query + start
    low = 0 if window is None else max(chunk.first_key, first - window + 1) - chunk.first_key
    return low, first + count - chunk.first_key


def _is_visible(queries: Tensor, keys: Tensor, window: int | None) -> Tensor:
    """Return which key positions [m] each query position [n] sees: bool [n, m]."""
    distance = queries[:, None] - keys
    is_visible = distance >= 0
    return is_visible if window is None else is_visible & (distance < window)


def _band_mask(plan: WindowPlan, tile: Tensor, num_keys: int, window: int | None) -> Tensor:
    """Return the additive mask [tile, num_keys] of a tile whose last query sees the last key.

    What a query sees depends on distances alone, so that all tiles of a step are cut from one
    band: its last column stands for the last query of a full tile.
    """
    count = tile.shape[2]
    reach = num_keys - count  # keys before the tile's first query
    if plan.band is None or plan.band.dtype != tile.dtype:
        rows = torch.arange(_TILE_QUERIES, device=tile.device)
        columns = torch.arange(-plan.reach, _TILE_QUERIES, device=tile.device)
        band = torch.zeros(len(rows), len(columns), dtype=tile.dtype, device=tile.device)
        plan.band = band.masked_fill_(~_is_visible(rows, columns, window), -math.inf)
    return plan.band[:count, plan.reach - reach : plan.reach + count]


def naive_attention(
    q: Tensor, cache: KVCache, batch: RaggedBatch, params: AttentionParams
) -> Tensor:
    """Return attention by its definition, one sequence at a time, in q's dtype: [n, heads, d].

    The oracle: give it float64 tensors.
    """
    out = torch.empty_like(q)
    starts = batch.query_start.tolist()
    for index, end in enumerate(batch.seq_lens.tolist()):
        rows = slice(starts[index], starts[index + 1])
        positions = torch.arange(end, device=q.device)
        blocks = batch.block_tables[index].long()[positions // batch.block_size]
        offsets = positions % batch.block_size
        ratio = q.shape[1] // cache.k.shape[2]
        k = cache.k[blocks, offsets].to(q.dtype).repeat_interleave(ratio, 1)  # [t, heads, d]
        v = cache.v[blocks, offsets].to(q.dtype).repeat_interleave(ratio, 1)
        scores = torch.einsum("nhd,thd->hnt", q[rows], k) * params.scale
        if params.softcap is not None:
            scores = params.softcap * torch.tanh(scores / params.softcap)
        queries = positions[end - (rows.stop - rows.start) :]
        scores.masked_fill_(~_is_visible(queries, positions, params.window), -math.inf)
        out[rows] = torch.einsum("hnt,thd->nhd", torch.softmax(scores, -1), v)
    return out
