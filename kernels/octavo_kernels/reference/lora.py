"""Low-rank changes of linear operations, in plain torch: out += scale * (x @ a.T) @ b.T.

Knows one adapter's factors for one matrix, and which rows they change. Does not know what an
adapter is, which requests the rows belong to, or how the matrix itself is multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class LowRankPiece:
    """One change: columns `ranks` of x @ a.T, times b, are added to columns `outs` of the result.

    b: [rank, out], transposed: torch's CPU products of few rows are fastest that way round.
    """

    b: Tensor
    ranks: slice
    outs: slice


@dataclass(frozen=True, slots=True)
class LowRankStack:
    """Changes to one matrix, their first factors side by side.  a: [in, sum of ranks]."""

    a: Tensor
    pieces: tuple[LowRankPiece, ...]


def stack_low_rank(
    changes: Sequence[tuple[Tensor, Tensor, int]], dtype: torch.dtype
) -> LowRankStack:
    """Stack changes (a [rank, in], b [out, rank], first output of b) of one matrix."""
    pieces, rank = [], 0
    for a, b, first in changes:
        ranks, outs = slice(rank, rank + len(a)), slice(first, first + len(b))
        pieces.append(LowRankPiece(b.T.to(dtype).contiguous(), ranks, outs))
        rank += len(a)
    joined = torch.cat([a for a, _, _ in changes]).T.to(dtype).contiguous()
    return LowRankStack(joined, tuple(pieces))


def add_low_rank(
    out: Tensor, x: Tensor, stack: LowRankStack, rows: slice | Tensor, scales: Tensor
) -> None:
    """Add the changes to some rows of out [cap, out], times each row's scale.

    x: [cap, in]; rows: a slice, or int64 [n] without repetitions; scales: [n, 1]. Rows that
    follow one another are changed where they lie, others are gathered and scattered.
    """
    reduced = torch.mm(x[rows], stack.a)  # [n, sum of ranks]
    reduced *= scales
    if isinstance(rows, slice):
        lines = out[rows]
        for piece in stack.pieces:
            lines[:, piece.outs].addmm_(reduced[:, piece.ranks], piece.b)
        return
    for piece in stack.pieces:
        change = torch.mm(reduced[:, piece.ranks], piece.b)
        out[:, piece.outs].index_add_(0, rows, change)
