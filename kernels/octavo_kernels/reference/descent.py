"""Draws a token id in proportion to weights, by halving the range of ids again and again.

The ids of a row of n weights are the leaves of a binary tree of L = `num_levels(n)` levels, ids
from n on weighing nothing. The draw begins at the whole range [0, 2**L). At level j = 0 .. L - 1
it goes from a range to one of its halves: with `left` and `total` the masses (sums of weights) of
the lower half and of the range, and noise u_j, to the upper half if u_j * total >= left, else to
the lower one; never into a half of mass 0. What is left after L levels is one id.

An id is drawn in the proportion of its weight, as the halves' conditional probabilities multiply
up to it. Noise is of the level, not of the range, and independent between levels: so weights that
differ by rounding lead to another id only where one of the L numbers lies within that rounding of
its ratio. Were one number compared with the sums of all ids before each, as an inverse CDF does,
every boundary between two ids would be such a place.

A range's mass is a difference of two sums over the weights of all ids before its ends, in float64;
the sums of a range of more than `SUM_BLOCK` ids are of whole blocks, each in float32 inside.
Rows are walked one by one in plain Python: a few hundred nanoseconds a level, less than numpy
takes to call. Knows weights and noise. Does not know logits, filters or where noise comes from.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from octavo_kernels.reference.arrays import to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_BLOCK_LEVELS: Final = 8
#: whole rows are padded with weights of 0 to a multiple of so many
SUM_BLOCK: Final = 1 << _BLOCK_LEVELS


def num_levels(width: int) -> int:
    """Return ceil(log2(width)), how often `width` ids are halved until one is left; width > 0."""
    return (width - 1).bit_length()


def block_sums(weights: Tensor) -> NDArray[np.float64]:
    """Return sums of blocks of weights [rows, padded]: float64 [rows, blocks].

    A plain sum over a row would depend on the batch: torch splits a reduction between threads
    when it has few results. Here each row has many, so one row sums up as it does among others.
    """
    sums = weights.view(weights.shape[0], -1, SUM_BLOCK).sum(-1)
    return to_numpy(sums).astype(np.float64)


def draw_from_rows(weights: Tensor, noise: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw an id from each of whole rows: int64 [rows].

    weights: float32 [rows, padded], none negative, one of each row above 0; noise: [rows, levels].
    """
    count, dice = len(noise), noise.tolist()
    ends = np.cumsum(block_sums(weights), axis=1)
    num_outer = max(noise.shape[1] - _BLOCK_LEVELS, 0)
    blocks = np.array([_descend(ends[i], dice[i][:num_outer]) for i in range(count)], np.int64)
    places = torch.from_numpy(np.arange(count) * ends.shape[1] + blocks).to(weights.device)
    chosen = weights.view(-1, SUM_BLOCK).index_select(0, places)
    ends = np.cumsum(to_numpy(chosen), axis=1, dtype=np.float64)
    inner = np.array([_descend(ends[i], dice[i][num_outer:]) for i in range(count)], np.int64)
    return blocks * SUM_BLOCK + inner


def _descend(ends: NDArray[np.float64], dice: list[float]) -> int:
    """Return a place of `ends`, the sums of what lies at each place and before, [places].

    Places are the leaves of a tree of len(dice) levels; those beyond the last have no mass.
    """
    item, last = ends.item, len(ends) - 1
    start, half = 0, 1 << len(dice) >> 1
    below, above = 0.0, item(last)
    for die in dice:
        middle = item(min(start + half - 1, last))
        if middle < above and die * (above - below) >= middle - below:
            start, below = start + half, middle
        else:
            above = middle
        half >>= 1
    return start


def draw_from_candidates(
    ids: NDArray[np.int64],
    weights: NDArray[np.float64],
    sizes: NDArray[np.int64],
    noise: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Draw one of the first sizes[i] ids of each row, or 0 where that is none: int64 [rows].

    ids (in any order, each once in its row) and their weights: [rows, count]; noise: [rows,
    levels]. It is what `draw_from_rows` draws where these ids alone have weight.
    """
    width = int(sizes.max())
    ids, is_left_out = ids[:, :width], np.arange(width) >= sizes[:, None]
    order = np.argsort(ids + (is_left_out << 32), axis=1)  # those left out come last
    ordered = np.take_along_axis(ids, order, 1).tolist()
    sums = np.zeros((len(ids), width + 1))
    np.cumsum(np.take_along_axis(weights[:, :width], order, 1), axis=1, out=sums[:, 1:])
    rows = zip(ordered, sums.tolist(), sizes.tolist(), noise.tolist(), strict=True)
    return np.array([_descend_ids(*row) for row in rows], np.int64)


def _descend_ids(ids: list[int], sums: list[float], size: int, dice: list[float]) -> int:
    """Return one of the first `size` ids, which ascend; sums[i] is the weight of those before i."""
    if not size:
        return 0
    first, stop = 0, size
    start, half = 0, 1 << len(dice) >> 1
    below, above = 0.0, sums[size]
    for die in dice:
        if stop - first == 1:
            break
        place = bisect_left(ids, start + half, first, stop)
        middle = sums[place]
        if middle < above and die * (above - below) >= middle - below:
            start, first, below = start + half, place, middle
        else:
            stop, above = place, middle
        half >>= 1
    return ids[first]
