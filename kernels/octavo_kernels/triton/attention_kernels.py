"""Attention over paged keys and values, and the write into the cache, in Triton.

The positions of a sequence are cut into pieces at fixed multiples of `shape.piece`, and a piece
into tiles at fixed multiples of `shape.keys`. A row (one query of one head) is reduced tile by
tile within a piece, from nothing, and piece by piece in ascending order. A tile or piece of which
a row sees nothing changes none of its bits, so that it does not matter which others are computed
beside it, nor whether `attend` folds the pieces itself or leaves them to `merge`.

Knows tiles. Does not know how they are dealt out: `attention_plan` does.
"""

import triton
import triton.language as tl

from octavo_kernels.triton.arguments import Numbers, PagedKeys, Rows, Work

_ITEM_FIELDS = tl.constexpr(8)
_MERGE_FIELDS = tl.constexpr(4)
_LOG2_E = tl.constexpr(1.4426950408889634)
_NOTHING = tl.constexpr(float("-inf"))


@triton.jit
def attend(  # noqa: PLR0917 - a kernel's arguments are positional
    out: Rows, q: Rows, paged: PagedKeys, work: Work, numbers: Numbers, shape: tl.constexpr
) -> None:
    """Attend with one tile of queries over some pieces of keys.  Grid: (items, kv_heads).

    An item with a base leaves each piece's result at its rows in `work`; one without folds them
    and writes `out`.
    """
    item = work.items + tl.program_id(0) * _ITEM_FIELDS
    kv_head = tl.program_id(1)
    token, count = tl.load(item), tl.load(item + 1)
    position, sequence = tl.load(item + 2), tl.load(item + 3)
    first_piece, end_piece, base = tl.load(item + 4), tl.load(item + 5), tl.load(item + 6)
    # rows: [shape.rows], one for each query and each of the heads that read this key head
    row = tl.arange(0, shape.rows)
    query, head = row // shape.ratio, kv_head * shape.ratio + row % shape.ratio
    dim = tl.arange(0, shape.padded_dim)
    is_cell = (query < count)[:, None] & (dim < shape.head_dim)[None, :]
    cells = (token + query).to(tl.int64) * q.token_stride + head * q.head_stride
    queries = tl.load(q.data + cells[:, None] + dim[None, :], mask=is_cell, other=0.0)
    reach = (position, tl.maximum(0, position - numbers.window + 1), position + count)
    table = paged.tables + sequence.to(tl.int64) * paged.table_stride
    top = tl.full([shape.rows], _NOTHING, tl.float32)
    total = tl.full([shape.rows], 0.0, tl.float32)
    sums = tl.full([shape.rows, shape.padded_dim], 0.0, tl.float32)
    for piece in range(first_piece, end_piece):
        part = _reduce_piece(queries, reach, (table, paged, kv_head), piece, numbers, shape)
        if base >= 0:
            place = base + (piece - first_piece) * count + query
            place = place.to(tl.int64) * (shape.kv_heads * shape.ratio) + head
            tl.store(work.stats + place * 2, part[0], mask=query < count)
            tl.store(work.stats + place * 2 + 1, part[1], mask=query < count)
            places = (place * shape.head_dim)[:, None] + dim[None, :]
            tl.store(work.sums + places, part[2], mask=is_cell)
        else:
            top, total, sums = _fold((top, total, sums), part)
    if base < 0:
        cells = (token + query).to(tl.int64) * out.token_stride + head * out.head_stride
        result = (sums / _divisor(total)[:, None]).to(out.data.dtype.element_ty)
        tl.store(out.data + cells[:, None] + dim[None, :], result, mask=is_cell)


@triton.jit
def merge(out: Rows, work: Work, shape: tl.constexpr) -> None:
    """Fold the pieces of one query that `attend` left in `work`.  Grid: (merges, kv_heads)."""
    item = work.merges + tl.program_id(0) * _MERGE_FIELDS
    token, base = tl.load(item), tl.load(item + 1)
    step, num_pieces = tl.load(item + 2), tl.load(item + 3)
    row = tl.arange(0, shape.padded_ratio)
    head = tl.program_id(1) * shape.ratio + row
    dim = tl.arange(0, shape.padded_dim)
    is_row = row < shape.ratio
    is_cell = is_row[:, None] & (dim < shape.head_dim)[None, :]
    top = tl.full([shape.padded_ratio], _NOTHING, tl.float32)
    total = tl.full([shape.padded_ratio], 0.0, tl.float32)
    sums = tl.full([shape.padded_ratio, shape.padded_dim], 0.0, tl.float32)
    for piece in range(num_pieces):
        place = (base + piece * step).to(tl.int64) * (shape.kv_heads * shape.ratio) + head
        part_top = tl.load(work.stats + place * 2, mask=is_row, other=_NOTHING)
        part_total = tl.load(work.stats + place * 2 + 1, mask=is_row, other=0.0)
        places = (place * shape.head_dim)[:, None] + dim[None, :]
        part_sums = tl.load(work.sums + places, mask=is_cell, other=0.0)
        top, total, sums = _fold((top, total, sums), (part_top, part_total, part_sums))
    cells = token.to(tl.int64) * out.token_stride + head * out.head_stride
    result = (sums / _divisor(total)[:, None]).to(out.data.dtype.element_ty)
    tl.store(out.data + cells[:, None] + dim[None, :], result, mask=is_cell)


@triton.jit
def write(paged: PagedKeys, k: Rows, v: Rows, slots: tl.tensor, shape: tl.constexpr) -> None:
    """Store one token's keys and values at its slot.  Grid: (tokens,)."""
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    cell = tl.arange(0, shape.padded)
    is_cell = cell < shape.heads * shape.width
    head, dim = cell // shape.width, cell % shape.width
    to = slot * (shape.heads * shape.width) + cell
    start = token.to(tl.int64)
    keys = tl.load(k.data + start * k.token_stride + head * k.head_stride + dim, mask=is_cell)
    values = tl.load(v.data + start * v.token_stride + head * v.head_stride + dim, mask=is_cell)
    tl.store(paged.k + to, keys.to(paged.k.dtype.element_ty), mask=is_cell)
    tl.store(paged.v + to, values.to(paged.v.dtype.element_ty), mask=is_cell)


@triton.jit
def _reduce_piece(  # noqa: PLR0917 - as `attend`
    queries: tl.tensor,
    reach: tl.tuple,
    source: tl.tuple,
    piece: tl.tensor,
    numbers: Numbers,
    shape: tl.constexpr,
) -> tl.tuple:
    """Return the largest score, the sum of weights and the weighted sum of values of a piece.

    reach: position of the tile's first query, first key that it sees, end of what any sees. Keys
    outside belong to nobody that is known here, and are not read.
    """
    position, first_key, end_key = reach
    table, paged, kv_head = source
    row = tl.arange(0, shape.rows)
    dim = tl.arange(0, shape.padded_dim)
    top = tl.full([shape.rows], _NOTHING, tl.float32)
    total = tl.full([shape.rows], 0.0, tl.float32)
    sums = tl.full([shape.rows, shape.padded_dim], 0.0, tl.float32)
    low = tl.maximum(piece * shape.piece, first_key // shape.keys * shape.keys)
    high = tl.minimum((piece + 1) * shape.piece, end_key)
    for start in range(low, high, shape.keys):
        key = start + tl.arange(0, shape.keys)
        is_key = (key >= first_key) & (key < end_key)
        is_cell = is_key[:, None] & (dim < shape.head_dim)[None, :]
        block = tl.load(table + key // shape.block_size, mask=is_key, other=0).to(tl.int64)
        slot = block * shape.block_size + key % shape.block_size
        cells = ((slot * shape.kv_heads + kv_head) * shape.head_dim)[:, None] + dim[None, :]
        keys = tl.load(paged.k + cells, mask=is_cell, other=0.0).to(queries.dtype)
        values = tl.load(paged.v + cells, mask=is_cell, other=0.0).to(queries.dtype)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * numbers.scale
        if shape.has_cap:
            scores = numbers.cap * _tanh(scores)
        back = (position + row // shape.ratio)[:, None] - key[None, :]
        scores = tl.where((back >= 0) & (back < numbers.window), scores, _NOTHING)
        peak = tl.maximum(top, tl.max(scores, 1))
        shift = _finite(peak)
        weights = tl.exp2(scores - shift[:, None])
        kept = tl.exp2(top - shift)
        total = total * kept + tl.sum(weights, 1)
        weights = weights.to(queries.dtype)
        sums = tl.dot(weights, values, sums * kept[:, None], input_precision="ieee")
        top = peak
    return top, total, sums


@triton.jit
def _fold(before: tl.tuple, part: tl.tuple) -> tl.tuple:
    """Add a piece to the pieces before it.

    The sums are explicit `fma`s, which a compiler can neither join nor split: `attend` and
    `merge` must come to the same bits.
    """
    peak = tl.maximum(before[0], part[0])
    shift = _finite(peak)
    kept, added = tl.exp2(before[0] - shift), tl.exp2(part[0] - shift)
    total = tl.fma(before[1], kept, part[1] * added)
    sums = tl.fma(
        before[2], tl.broadcast_to(kept[:, None], part[2].shape), part[2] * added[:, None]
    )
    return peak, total, sums


@triton.jit
def _finite(peak: tl.tensor) -> tl.tensor:
    """Return what to subtract from scores: no infinity minus infinity where nothing is seen."""
    return tl.where(peak == _NOTHING, 0.0, peak)


@triton.jit
def _divisor(total: tl.tensor) -> tl.tensor:
    """Return the sum of weights, or 1 in the rows that only fill a tile and see nothing."""
    return tl.where(total > 0, total, 1.0)


@triton.jit
def _tanh(x: tl.tensor) -> tl.tensor:
    """Return tanh by a power of two that cannot overflow."""
    t = tl.exp2(tl.abs(x) * (-2 * _LOG2_E))
    y = (1 - t) / (1 + t)
    return tl.where(x < 0, -y, y)
