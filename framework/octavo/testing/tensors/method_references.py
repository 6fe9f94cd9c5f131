"""What methods that papers and other engines know by name leave of logits, in float64.

`typical_p` (arXiv:2202.00666), `top_n_sigma` (arXiv:2411.07641) and `min_k` (arXiv:2604.11012):
a stage that takes a parameter of this name is held to its meaning.

Knows logits and numbers. Does not know stages.
"""

from __future__ import annotations

import math
import statistics
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    #: the logits of the live tokens by id, and the parameter
    Method = Callable[[dict[int, float], float], tuple[set[int], set[int]]]

_CLOSE = 1e-5


def support_of_method(
    names: Sequence[str], asked: Mapping[str, object], logits: Mapping[int, float]
) -> tuple[set[int], set[int]] | None:
    """Return the tokens that must be left, and those that may be; None where nothing is known."""
    known = [name for name in names if name in _METHODS and name in asked]
    if len(known) != 1:
        return None
    return _METHODS[known[0]](dict(logits), float(str(asked[known[0]])))


def smallest_set(
    weights: Mapping[int, float], order: Mapping[int, float], share: float, close: float = 0.0
) -> tuple[set[int], set[int]]:
    """Return the tokens of lowest `order` that hold a share of all weight, as few as do.

    Those whose order differs by no more than `close` are equally good.
    """
    total = math.fsum(weights.values())
    sure, possible = set[int](), set[int]()
    for i in weights:
        before = math.fsum(weights[j] for j in weights if order[j] < order[i] - close) / total
        tied = math.fsum(weights[j] for j in weights if order[j] <= order[i] + close) / total
        if before < share + _CLOSE:
            possible.add(i)
        if tied - weights[i] / total < share - _CLOSE:
            sure.add(i)
    return sure, possible


def largest(logits: Mapping[int, float], least: int, most: int) -> tuple[set[int], set[int]]:
    """Return the `least` largest, those of equal ones left out that may go, and the `most`."""
    ranked = sorted(logits.values(), reverse=True)
    low, high = ranked[min(least, len(ranked)) - 1], ranked[min(most, len(ranked)) - 1]
    is_whole = least >= len(ranked)
    sure = {i for i, x in logits.items() if x > low or (is_whole and x >= low)}
    return sure, {i for i, x in logits.items() if x >= high}


def _typical_p(logits: dict[int, float], mass: float) -> tuple[set[int], set[int]]:
    best = max(logits.values())
    log_total = best + math.log(math.fsum(math.exp(x - best) for x in logits.values()))
    surprise = {i: log_total - x for i, x in logits.items()}
    weights = {i: math.exp(-one) for i, one in surprise.items()}
    entropy = math.fsum(weights[i] * surprise[i] for i in logits)
    order = {i: abs(one - entropy) for i, one in surprise.items()}
    return smallest_set(weights, order, mass, _CLOSE)


def _top_n_sigma(logits: dict[int, float], num_sigmas: float) -> tuple[set[int], set[int]]:
    best = max(logits.values())
    floor = best - num_sigmas * statistics.pstdev(logits.values())
    sure = {i for i, x in logits.items() if x >= floor + _CLOSE or x == best}
    return sure, {i for i, x in logits.items() if x >= floor - _CLOSE}


def _min_k(logits: dict[int, float], tau: float) -> tuple[set[int], set[int]]:
    ranked = sorted(logits.values(), reverse=True)
    span = ranked[0] - ranked[-1]
    if span == 0:
        return set(logits), set(logits)
    falls = [(a - b) / (span * rank) for rank, (a, b) in enumerate(zip(ranked, ranked[1:]), 1)]  # noqa: B905, RUF007 - neighbours
    steepest = [rank for rank, fall in enumerate(falls, 1) if fall >= max(falls) - _CLOSE]
    fallback = min(tau / span, len(ranked))
    least = max(steepest[0], int(fallback * (1 - _CLOSE)))
    return largest(logits, least, max(steepest[-1], int(fallback * (1 + _CLOSE))))


_METHODS: Mapping[str, Method] = MappingProxyType(
    {"typical_p": _typical_p, "top_n_sigma": _top_n_sigma, "min_k": _min_k}
)
