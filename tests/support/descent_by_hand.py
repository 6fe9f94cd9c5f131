"""The draw of an op set's `sample`, from the words of `SamplingInputs` and nothing faster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from octavo_kernels.reference.noise import philox_scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


def dice_of(number: float, num_levels: int) -> list[float]:
    """Return the noise of each level of a draw whose row has this number."""
    dice: list[float] = []
    for index in range((num_levels + 1) // 2):
        words = philox_scalar((index, 0, 0, 1), int(number * 2**53))
        dice += [((words[i] >> 5) * 2**26 + (words[i + 1] >> 6)) / 2**53 for i in (0, 2)]
    return dice[:num_levels]


def drawn_by_hand(weights: np.ndarray, number: float) -> int:
    """Return the id that a row's number draws from weights, one for each id of the vocabulary."""
    num_levels = math.ceil(math.log2(len(weights)))
    return descended(weights, dice_of(number, num_levels))


def descended(weights: np.ndarray, dice: Sequence[float]) -> int:
    """Return the id that halving by these dice leaves."""
    start, stop = 0, 2 ** len(dice)
    for die in dice:
        middle, left, right = _halves(weights, start, stop)
        if right > 0 and die * (left + right) >= left:
            start = middle
        else:
            stop = middle
    return start


def misfit(weights: np.ndarray, number: float, token_id: int) -> float:
    """Return how far a number's dice lie at most on the wrong side of the way to a token.

    It is 0 where the number draws the token, and small where rounding may make it do so.
    """
    num_levels, worst = math.ceil(math.log2(len(weights))), 0.0
    start, stop = 0, 2**num_levels
    for die in dice_of(number, num_levels):
        middle, left, right = _halves(weights, start, stop)
        ratio = left / (left + right)
        if token_id >= middle:
            start, worst = middle, max(worst, ratio - die)
        else:
            stop, worst = middle, max(worst, die - ratio)
    return worst


def _halves(weights: np.ndarray, start: int, stop: int) -> tuple[int, float, float]:
    """Return the middle of a range of ids, and what its halves weigh."""
    middle = (start + stop) // 2
    return middle, weights[start:middle].sum(), weights[middle:stop].sum()
