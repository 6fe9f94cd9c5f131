"""Counter-based noise: a uniform number is a hash of what it is for, and of nothing else.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the
64-bit seed as the key and (position, choice, purpose, 0) as the counter. There is no generator
and no state, so that a draw does not depend on batching, order or who else draws.

Knows integers. Does not know requests or distributions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_MASK: Final = 0xFFFFFFFF
_SEED_MASK: Final = 0xFFFFFFFFFFFFFFFF
_TO_UNIT: Final = 2.0**-53
# Below this many rows, numpy's cost per call exceeds that of the scalar code.
_SCALAR_ROWS: Final = 2


def uniforms(
    seeds: NDArray[np.uint64],
    positions: NDArray[np.int64],
    choices: NDArray[np.int64],
    purpose: int,
) -> NDArray[np.float64]:
    """Return one number in [0, 1) per row, a multiple of 2**-53: float64 [n].

    Row i depends on seeds[i], positions[i], choices[i] and `purpose` alone; the last three count
    modulo 2**32. It is (w0 >> 5) * 2**26 + (w1 >> 6), times 2**-53, of the hash's four words.
    """
    count = len(seeds)
    if count <= _SCALAR_ROWS:
        rows = zip(seeds.tolist(), positions.tolist(), choices.tolist(), strict=True)
        return np.array([uniform(*row, purpose) for row in rows], dtype=np.float64)
    counters = np.zeros((4, count), dtype=np.uint64)
    counters[0] = positions
    counters[1] = choices
    counters[2] = purpose
    words = philox(counters & np.uint64(_MASK), seeds.astype(np.uint64, copy=False))
    high = (words[0] >> np.uint64(5)) << np.uint64(26)
    units: NDArray[np.float64] = (high + (words[1] >> np.uint64(6))).astype(np.float64)
    return units * _TO_UNIT


def uniform(seed: int, position: int, choice: int, purpose: int) -> float:
    """Return the number that `uniforms` gives for one row, by integer arithmetic alone."""
    words = philox_scalar((position & _MASK, choice & _MASK, purpose & _MASK, 0), seed & _SEED_MASK)
    return (((words[0] >> 5) << 26) + (words[1] >> 6)) * _TO_UNIT


def philox(counters: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash counters [4, n], words below 2**32, with 64-bit keys [n]: four 32-bit words [4, n]."""
    mask, shift = np.uint64(_MASK), np.uint64(32)
    multipliers = np.array(_MULTIPLIERS, dtype=np.uint64)[:, None]  # [2, 1]
    weyl = np.array(_WEYL, dtype=np.uint64)[:, None]
    key = np.stack((keys & mask, keys >> shift))  # [2, n]
    multiplied, xored = counters[0::2], counters[1::2]  # words 0 and 2, words 1 and 3
    for _ in range(_ROUNDS):
        product = multiplied * multipliers
        multiplied = (product >> shift)[::-1] ^ xored ^ key
        xored = (product & mask)[::-1]
        key = (key + weyl) & mask
    return np.stack((multiplied[0], xored[0], multiplied[1], xored[1]))


def philox_scalar(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """Hash one counter, word by word as the paper writes it."""
    word0, word1, word2, word3 = counter
    key0, key1 = key & _MASK, key >> 32
    for _ in range(_ROUNDS):
        product0 = word0 * _MULTIPLIERS[0]
        product2 = word2 * _MULTIPLIERS[1]
        word0 = (product2 >> 32) ^ word1 ^ key0
        word2 = (product0 >> 32) ^ word3 ^ key1
        word1, word3 = product2 & _MASK, product0 & _MASK
        key0, key1 = (key0 + _WEYL[0]) & _MASK, (key1 + _WEYL[1]) & _MASK
    return word0, word1, word2, word3
