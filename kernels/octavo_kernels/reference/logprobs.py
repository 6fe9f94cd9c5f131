"""Log-probabilities of chosen and of the likeliest tokens, in plain torch and numpy.

Works on a few rows at a time, so that memory does not grow with the number of rows times the
vocabulary. Knows numbers. Does not know requests or texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from octavo_kernels.reference.arrays import take_rows, to_numpy
from octavo_kernels.reference.candidates import likeliest

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_TILE_ROWS: Final = 8
# Up to so many top tokens come from candidates; beyond, or where ties reach further, a row is
# sorted.
_CANDIDATES: Final = 64


@dataclass(frozen=True, slots=True)
class Logprobs:
    """By row: log-probability and rank (1 = best) of the chosen token, and the top tokens' own.

    A rank counts the tokens that are strictly likelier. Top tokens are sorted, best first, equal
    ones by lower id.
    """

    chosen: NDArray[np.float32]  # [n]
    ranks: NDArray[np.int64]  # [n]
    top_ids: list[NDArray[np.int64]]
    top_logprobs: list[NDArray[np.float32]]


def logprobs(
    logits: Tensor,
    rows: NDArray[np.integer],
    token_ids: NDArray[np.integer],
    num_top: NDArray[np.integer],
) -> Logprobs:
    """Return log-softmax values of logits [any, vocab] for n wanted rows.

    Entry i is about row rows[i]: its token token_ids[i] and its num_top[i] likeliest (-1: all;
    more than the vocabulary: all). A row of NaN gives NaN, and leaves the others alone; each row
    is a function of itself alone, bit for bit.
    """
    width = logits.shape[1]
    wanted = np.where(num_top < 0, width, np.minimum(num_top, width)).astype(np.int64)
    parts = [
        _tile(
            take_rows(logits, rows[start : start + _TILE_ROWS].astype(np.int64)),
            token_ids[start : start + _TILE_ROWS].astype(np.int64),
            wanted[start : start + _TILE_ROWS],
        )
        for start in range(0, len(rows), _TILE_ROWS)
    ]
    return Logprobs(
        np.concatenate([part.chosen for part in parts] or [np.empty(0, np.float32)]),
        np.concatenate([part.ranks for part in parts] or [np.empty(0, np.int64)]),
        [ids for part in parts for ids in part.top_ids],
        [values for part in parts for values in part.top_logprobs],
    )


def _tile(x: Tensor, token_ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> Logprobs:
    norms = _log_sums(x)
    ids = torch.from_numpy(token_ids).to(x.device)
    values = to_numpy(x.gather(1, ids[:, None]))[:, 0]
    ranks = np.array([_rank(row, value) for row, value in zip(to_numpy(x), values, strict=True)])
    top_ids: list[NDArray[np.int64]] = []
    top_logprobs: list[NDArray[np.float32]] = []
    candidates = likeliest(x, _CANDIDATES) if wanted.any() else None
    for row, count in enumerate(wanted.tolist()):
        if candidates is not None and count <= candidates.known[row]:
            best, logits = candidates.ids[row, :count], candidates.values[row, :count]
        else:
            full = to_numpy(x[row])
            best = np.argsort(-full, kind="stable")[:count] if count else np.empty(0, np.int64)
            logits = full[best]
        top_ids.append(best.astype(np.int64))
        top_logprobs.append((logits - norms[row]).astype(np.float32))
    return Logprobs((values - norms).astype(np.float32), ranks, top_ids, top_logprobs)


def _rank(row: NDArray[np.float32], value: np.float32) -> int:
    """Return 1 plus the number of larger values; numpy counts much faster than torch sums."""
    return int(np.count_nonzero(row > value)) + 1


def _log_sums(x: Tensor) -> NDArray[np.float64]:
    """Return log(sum(exp(x))) of each row, float64 [rows].

    By softmax, which torch computes row by row: `logsumexp` gives other bits to a row alone.
    """
    best, ids = x.max(1, keepdim=True)
    peak = torch.softmax(x, 1).gather(1, ids)  # exp(best - log_sum)
    return to_numpy(best.double() - peak.double().log())[:, 0].astype(np.float64)
