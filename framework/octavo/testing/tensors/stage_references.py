"""Which tokens are left by the fields of `SamplingParams` that cut, in float64, by definition.

Knows logits and numbers. Does not know stages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.sampling_params import SamplingParams

_CLOSE = 1e-5


def expected_support(
    names: Sequence[str], params: SamplingParams, logits: Sequence[float]
) -> tuple[set[int], set[int]] | None:
    """Return the tokens that must be left, and those that may be; None where nothing is known.

    They differ where rounding decides, or ties: equal logits are equally good.
    """
    live = [i for i, x in enumerate(logits) if x > -math.inf]
    if not live:
        return None
    if "allowed_token_ids" in names and params.allowed_token_ids:
        left = set(live) & set(params.allowed_token_ids)
        return left, left
    if "top_k" in names and params.top_k > 0:
        return _top_k(live, logits, params.top_k)
    if "min_p" in names and params.min_p > 0:
        return _min_p(live, logits, params.min_p)
    if "top_p" in names and params.top_p < 1:
        return _top_p(live, logits, params.top_p)
    return None


def _top_k(live: list[int], logits: Sequence[float], k: int) -> tuple[set[int], set[int]]:
    ranked = sorted((logits[i] for i in live), reverse=True)
    last = ranked[min(k, len(ranked)) - 1]
    return {i for i in live if logits[i] > last}, {i for i in live if logits[i] >= last}


def _weights(live: list[int], logits: Sequence[float]) -> dict[int, float]:
    best = max(logits[i] for i in live)
    return {i: math.exp(logits[i] - best) for i in live}


def _min_p(live: list[int], logits: Sequence[float], p: float) -> tuple[set[int], set[int]]:
    weights = _weights(live, logits)
    sure = {i for i in live if weights[i] > p * (1 + _CLOSE) or weights[i] == 1}
    return sure, {i for i in live if weights[i] >= p * (1 - _CLOSE)}


def _top_p(live: list[int], logits: Sequence[float], p: float) -> tuple[set[int], set[int]]:
    weights = _weights(live, logits)
    total = math.fsum(weights.values())
    sure, possible = set[int](), set[int]()
    for i in live:
        above = math.fsum(w for w in weights.values() if w > weights[i]) / total
        tied = math.fsum(w for w in weights.values() if w >= weights[i]) / total
        if above < p + _CLOSE:
            possible.add(i)
        if tied - weights[i] / total < p - _CLOSE:
            sure.add(i)
    return sure, possible
