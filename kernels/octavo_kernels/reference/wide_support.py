"""Top-k, min-p and top-p over one whole row, where the support is too wide for candidates.

Filters set the weights of what they drop to 0. The threshold of top-p is found by summing weights
into bins of logits and sorting the one bin in which the sum crosses it; a row is not sorted.

Knows one row in numpy: a row fits the cache, which many rows do not. Does not know how tokens are
drawn from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BINS: Final = 4096
# Bins cover so many temperatures, or logits, below the maximum; the last takes all that is lower.
_SPAN_TEMPERATURES: Final = 32.0
_SPAN_LOGITS: Final = 64.0
_SMALLEST_SPAN: Final = 1e-30


def keep_min_p(weights: NDArray[np.float32], min_p: float) -> None:
    """Keep what weighs at least min_p, where the likeliest weighs 1."""
    weights *= weights >= min_p


def keep_top_k(logits: NDArray[np.float32], weights: NDArray[np.float32], top_k: int) -> None:
    """Keep the top_k largest logits, of equal ones those of lower id.  0 < top_k < len(logits)."""
    kth = len(logits) - top_k
    threshold = np.partition(logits, kth)[kth]
    ties = np.flatnonzero(logits == threshold)
    num_above = int(np.count_nonzero(logits > threshold))
    weights *= logits >= threshold  # much faster than assigning where a mask is true at random
    weights[ties[top_k - num_above :]] = 0


class TopP:
    """Top-p over rows of one width, in memory that they share: fresh pages cost as much again."""

    def __init__(self, width: int) -> None:
        self._distances = np.empty(width, dtype=np.float32)
        self._bins = np.empty(width, dtype=np.int16)
        self._index = np.empty(width, dtype=np.int64)
        self._weights = np.empty(width, dtype=np.float64)
        self._mask = np.empty(width, dtype=np.bool_)

    def keep(
        self,
        logits: NDArray[np.float32],
        weights: NDArray[np.float32],
        top_p: float,
        temperature: float,
        best: np.float32,
    ) -> None:
        """Keep the smallest set of largest logits that weighs top_p < 1 of all that has weight.

        `best` is the largest logit.
        """
        bins, mask = self._fill_bins(logits, temperature, best), self._mask
        np.copyto(self._index, bins)
        np.copyto(self._weights, weights)
        ends = np.cumsum(np.bincount(self._index, self._weights, _BINS))
        goal = top_p * ends[-1]
        crossing = min(int(np.searchsorted(ends, goal)), _BINS - 1)
        start = ends[crossing - 1] if crossing else 0.0
        members = np.flatnonzero(np.equal(bins, crossing, out=mask))
        members = members[np.argsort(-logits[members], kind="stable")]  # ids ascend among equals
        sums = start + np.cumsum(weights[members], dtype=np.float64)
        num_kept = int(np.searchsorted(sums, goal)) + 1
        weights[members[num_kept:]] = 0
        weights *= np.less_equal(bins, crossing, out=mask)

    def _fill_bins(
        self, logits: NDArray[np.float32], temperature: float, best: np.float32
    ) -> NDArray[np.int16]:
        """Return the bin of each logit: 0 for the largest, the last for all that are far below."""
        span = max(min(_SPAN_TEMPERATURES * temperature, _SPAN_LOGITS), _SMALLEST_SPAN)
        distances = np.subtract(best, logits, out=self._distances)
        with np.errstate(over="ignore"):  # a distance beyond float32 belongs into the last bin
            distances *= np.float32(_BINS / span)
        np.minimum(distances, np.float32(_BINS - 1), out=distances)
        np.copyto(self._bins, distances, casting="unsafe")
        return self._bins
