"""The tokens of one row that may still be drawn, as arrays, and what is kept of them.

Stages that are not native compute here, in float64 and without sorting the vocabulary: a row of
50 000 tokens takes a fraction of a millisecond.

Knows one row of logits. Does not know parameters or methods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo_kernels.reference.arrays import to_numpy
from octavo_kernels.reference.edits import keep_only

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_BINS = 1024
#: what is further away than so much of the order's unit (nats, logits) shares the last bin
_SPAN = 32.0


@dataclass(frozen=True, slots=True)
class LiveTokens:
    """Tokens whose logit is above -inf, by ascending id; there is at least one."""

    logits: NDArray[np.float32]  # [n]
    ids: NDArray[np.int64] | None  # [n]; None: all of the vocabulary
    best: float  # the largest logit, finite

    def distances(self) -> NDArray[np.float64]:
        """Return each logit minus the largest: [n], none above 0."""
        distances = self.logits.astype(np.float64)
        distances -= self.best
        return distances

    def keep(self, row: Tensor, is_kept: NDArray[np.bool_]) -> None:
        """Set all but some of these tokens to -inf in the row that they are from."""
        kept = np.flatnonzero(is_kept)
        if len(kept) < len(self.logits):
            keep_only(row[None], 0, kept if self.ids is None else self.ids[kept])


def live_tokens(row: Tensor) -> LiveTokens | None:
    """Return what may be drawn of logits [vocab] (the values may be a view of them).

    None when there is nothing to choose from: a row that holds NaN or +inf, or nothing above
    -inf, is left as it is for the op set to report.
    """
    logits: NDArray[np.float32] = to_numpy(row)
    best = float(logits.max())
    if not math.isfinite(best):
        return None
    if logits.min() > -math.inf:
        return LiveTokens(logits, None, best)
    ids = np.flatnonzero(logits > -math.inf)
    return LiveTokens(logits[ids], ids, best)


def weigh(distances: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """Return exp of distances [n], its sum, and the mean of the distances weighted by it.

    log(sum) - mean is the entropy in nats of tokens whose logits are so far below the largest.
    """
    weights = np.exp(distances)
    total = float(weights.sum())
    # not `weights @ distances`: BLAS would wake threads of its own, which costs far more
    return weights, total, float((weights * distances).sum()) / total


def smallest_set(
    order: NDArray[np.float64], weights: NDArray[np.float64], share: float
) -> NDArray[np.bool_]:
    """Return which tokens of lowest `order` hold at least `share` of all weight, as few as do.

    order: [n], >= 0; of equal ones the first comes first. weights: [n], >= 0. Weights are summed
    into bins of `order`, and only the bin in which the sum crosses the goal is sorted.
    """
    scaled = order * (_BINS / _SPAN)
    bins = np.minimum(scaled, _BINS - 1, out=scaled).astype(np.intp)
    ends = np.cumsum(np.bincount(bins, weights=weights, minlength=_BINS))
    goal = share * ends[-1]
    crossing = min(int(np.searchsorted(ends, goal)), _BINS - 1)
    start = ends[crossing - 1] if crossing else 0.0
    members = np.flatnonzero(bins == crossing)
    members = members[np.argsort(order[members], kind="stable")]
    num_in = int(np.searchsorted(start + np.cumsum(weights[members]), goal)) + 1
    is_in: NDArray[np.bool_] = bins <= crossing
    is_in[members[num_in:]] = False
    return is_in


def largest(values: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the `count` largest of values [n], largest first; all when there are no more."""
    top = values if len(values) <= count else np.partition(values, len(values) - count)[-count:]
    return np.sort(top)[::-1]


def largest_mask(values: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return which of values [n] are the `count` > 0 largest, of equal ones the first."""
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    is_in: NDArray[np.bool_] = values >= threshold
    surplus = int(np.count_nonzero(is_in)) - count
    if surplus:
        ties = np.flatnonzero(values == threshold)
        is_in[ties[len(ties) - surplus :]] = False
    return is_in
