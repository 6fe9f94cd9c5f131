"""Draws token ids from logits, in plain torch and numpy.

The rule, for a row with logits x, temperature t and noise u:

1. t = 0: the first of the largest logits. Nothing below applies.
2. Tokens weigh exp((x - max) / t). A token of logit -inf weighs nothing and is never drawn.
3. min-p keeps tokens that weigh at least min_p (the likeliest weighs 1). Top-k keeps the k of
   largest logit. Top-p keeps, of what is left, the smallest set of largest logits whose weights
   sum to at least top_p of all that is left. Between equal logits, the lower id goes first. This
   is vLLM's order: top-p renormalises what min-p and top-k leave.
4. The token is found by halving the range of ids again and again
   (`octavo_kernels.reference.descent`), each time by noise of its own, hashed from u.

Every result is a function of its row alone, bit for bit, whatever shares the batch. The whole
vocabulary is neither sorted nor given noise: filters look at a few hundred candidates first, and
only a row whose support is larger takes the wider path (`octavo_kernels.reference.wide_support`).

Knows numbers. Does not know requests, history or seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from octavo_kernels.reference.arrays import take_rows, to_numpy
from octavo_kernels.reference.candidates import Candidates, likeliest
from octavo_kernels.reference.descent import (
    SUM_BLOCK,
    block_sums,
    draw_from_candidates,
    draw_from_rows,
    num_levels,
)
from octavo_kernels.reference.noise import level_uniforms
from octavo_kernels.reference.wide_support import TopP, keep_min_p, keep_top_k

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

_CANDIDATES: Final = 256
# Rows worked on at once: their logits and weights stay in cache.
_TILE_ROWS: Final = 8


@dataclass(slots=True)
class SamplingRows:
    """Parameters by row, each [rows]. top_k <= 0, top_p >= 1 and min_p <= 0 are off.

    `uniforms` are in [0, 1), multiples of 2**-53: what a draw's noise is hashed from.
    """

    temperature: NDArray[np.floating]
    top_k: NDArray[np.integer]
    top_p: NDArray[np.floating]
    min_p: NDArray[np.floating]
    uniforms: NDArray[np.float64]

    def take(self, index: NDArray[np.int64]) -> SamplingRows:
        """Return the parameters of some rows."""
        return SamplingRows(
            self.temperature[index],
            self.top_k[index],
            self.top_p[index],
            self.min_p[index],
            self.uniforms[index],
        )


def sample(logits: Tensor, rows: SamplingRows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw one token id per row of logits: float32 [rows, vocab], left as they are.

    Returns ids int64 [rows], and which rows are bad, bool [rows]: those that hold NaN or +inf, or
    nothing but -inf. A bad row's id is 0; it disturbs no other.
    """
    best, first = (to_numpy(tensor) for tensor in logits.max(-1))
    is_bad = ~np.isfinite(best)
    ids = np.where(is_bad, 0, first)
    is_drawn = ~is_bad & (rows.temperature > 0)
    if not is_drawn.any():
        return ids, is_bad
    has_top_k = (rows.top_k > 0) & (rows.top_k < logits.shape[1])
    is_plain = ~has_top_k & (rows.top_p >= 1) & (rows.min_p <= 0)
    needs_total = ~is_plain & ~has_top_k & (rows.min_p <= 0)
    call = _Call(logits, rows, best, is_drawn)
    for index in _tiles(is_drawn & is_plain):
        tile = _Tile(call, index)
        ids[index] = draw_from_rows(tile.weights(), tile.noise)
    for is_member, has_total in ((needs_total, True), (~is_plain & ~needs_total, False)):
        for index in _tiles(is_drawn & is_member):
            ids[index] = _draw_filtered(_Tile(call, index), has_total=has_total)
    return ids, is_bad


def _tiles(is_member: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    members = np.flatnonzero(is_member)
    for start in range(0, len(members), _TILE_ROWS):
        yield members[start : start + _TILE_ROWS]


class _Call:
    """What all tiles of a call share: its rows, their noise, and memory that stays in cache."""

    def __init__(
        self,
        logits: Tensor,
        rows: SamplingRows,
        best: NDArray[np.float32],
        is_drawn: NDArray[np.bool_],
    ) -> None:
        self.logits = logits
        self.rows = rows
        self.best = best
        count, self._width = logits.shape
        levels = num_levels(self._width)
        self.noise = np.zeros((count, levels))
        self.noise[is_drawn] = level_uniforms(rows.uniforms[is_drawn], levels)
        padded = -(-self._width // SUM_BLOCK) * SUM_BLOCK
        self.weights = logits.new_empty((_TILE_ROWS, padded))

    @cached_property
    def top_p(self) -> TopP:
        """Return what cuts wide rows; made when the first one comes."""
        return TopP(self._width)


class _Tile:
    """A few rows of logits [rows, vocab] with their parameters, maxima and noise."""

    def __init__(self, call: _Call, index: NDArray[np.int64]) -> None:
        self.call = call
        self.rows = call.rows.take(index)
        self.best = call.best[index]
        self.noise = call.noise[index]  # [rows, levels]
        self.logits = take_rows(call.logits, index)

    def weights(self) -> Tensor:
        """Return exp((x - max) / t), padded with 0 to whole blocks: float32 [rows, padded]."""
        weights, width = self.call.weights[: len(self.best)], self.logits.shape[1]
        weights[:, width:] = 0
        live = weights[:, :width]
        torch.sub(self.logits, self._column(self.best), out=live)
        live.div_(self._column(self.rows.temperature.astype(np.float32))).exp_()
        return weights

    def _column(self, values: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self.logits.device)[:, None]


def _draw_filtered(tile: _Tile, *, has_total: bool) -> NDArray[np.int64]:
    """Draw each row of a tile from its candidates, or from whole rows where they do not decide.

    `has_total`: top-p alone filters these rows, so that the weights of whole rows are needed.
    """
    if not has_total:
        ids, is_decided = _draw_narrow(tile, None)
        return ids if is_decided.all() else _draw_wide(tile, tile.weights(), ids, is_decided)
    weights = tile.weights()
    totals = block_sums(weights).sum(1)
    # no candidate weighs more than 1, so that none of these rows could be decided by them
    if (tile.rows.top_p * totals > _CANDIDATES).all():
        nothing = np.zeros(len(totals), dtype=np.int64)
        return _draw_wide(tile, weights, nothing, nothing.astype(np.bool_))
    ids, is_decided = _draw_narrow(tile, totals)
    return ids if is_decided.all() else _draw_wide(tile, weights, ids, is_decided)


def _draw_wide(
    tile: _Tile, weights: Tensor, ids: NDArray[np.int64], is_decided: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return `ids` with those that are not decided drawn from weights [rows, padded]."""
    restricted, logits = to_numpy(weights), to_numpy(tile.logits)
    rows, width = tile.rows, logits.shape[1]
    wide = np.flatnonzero(~is_decided)
    for row in wide.tolist():
        live = restricted[row, :width]
        if rows.min_p[row] > 0:
            keep_min_p(live, float(rows.min_p[row]))
        if 0 < rows.top_k[row] < width:
            keep_top_k(logits[row], live, int(rows.top_k[row]))
        if rows.top_p[row] < 1:
            shape = (float(rows.top_p[row]), float(rows.temperature[row]))
            tile.call.top_p.keep(logits[row], live, *shape, tile.best[row])
    if len(wide) < len(restricted):
        restricted = restricted[wide]
    ids[wide] = draw_from_rows(torch.from_numpy(restricted), tile.noise[wide])
    return ids


def _draw_narrow(
    tile: _Tile, totals: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw each row from its candidates, where they decide its support.

    `totals` are the weights of whole rows, where top-p alone filters. Returns ids, and which of
    them are decided.
    """
    rows, candidates = tile.rows, likeliest(tile.logits, _CANDIDATES)
    distances = candidates.values.astype(np.float64) - tile.best[:, None]
    is_known = np.arange(distances.shape[1]) < candidates.known[:, None]
    weights = np.exp(distances / rows.temperature.astype(np.float64)[:, None]) * is_known
    sums = np.cumsum(weights, axis=1)
    sizes = _support_sizes(candidates, rows, weights, sums, totals)
    is_decided = sizes <= candidates.known
    sizes = np.where(is_decided, sizes, 0)
    ids = draw_from_candidates(candidates.ids, weights, sizes, tile.noise)
    return ids, is_decided


def _support_sizes(
    candidates: Candidates,
    rows: SamplingRows,
    weights: NDArray[np.float64],
    sums: NDArray[np.float64],
    totals: NDArray[np.float64] | None,
) -> NDArray[np.int64]:
    """Return how many of the largest each row keeps; more than are known means undecided."""
    known = candidates.known
    undecided = np.iinfo(np.int64).max
    sizes = np.where(candidates.is_complete, known, undecided)
    sizes = np.where(rows.top_k > 0, np.minimum(sizes, rows.top_k), sizes)
    passing = np.count_nonzero(weights >= rows.min_p.astype(np.float64)[:, None], axis=1)
    has_min_p = (rows.min_p > 0) & (passing < known)
    sizes = np.where(has_min_p, np.minimum(sizes, passing), sizes)
    last = np.clip(np.minimum(sizes, known) - 1, 0, None)
    left = sums[np.arange(len(last)), last]
    if totals is not None:
        left = np.where(candidates.is_complete, left, totals)
    elif (rows.top_p >= 1).all():
        return sizes
    goal = (rows.top_p.astype(np.float64) * left)[:, None]
    # the sum may stop short of the goal: by rounding when all is known, truly when it is not
    reached = np.count_nonzero(sums < goal, axis=1) + 1
    reached = np.where(reached <= known, reached, undecided)
    is_countable = (sizes <= known) | (totals is not None)
    return np.where((rows.top_p < 1) & is_countable, np.minimum(sizes, reached), sizes)
