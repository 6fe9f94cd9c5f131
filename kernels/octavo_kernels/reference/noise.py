"""Counter-based noise: a uniform number is a hash of what it is for, and of nothing else.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the
64-bit seed as the key and (position, choice, purpose, 0) as the counter. Where one number is not
enough, it is hashed on: its 53 bits are the key, (index, 0, 0, 1) is the counter. There is no
generator and no state, so that a draw does not depend on batching, order or who else draws.

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
_UNIT_STEPS: Final = 2.0**53
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
    return _units(words[0], words[1])


def level_uniforms(uniforms: NDArray[np.float64], num_levels: int) -> NDArray[np.float64]:
    """Return the noise of each level of each row's draw: float64 [n, num_levels], as `uniforms`.

    Row i depends on uniforms[i] in [0, 1) alone. The key is floor(uniforms[i] * 2**53). Level j
    takes its number from the hash of the counter (j // 2, 0, 0, 1): of its words 0 and 1 where j
    is even, of its words 2 and 3 where j is odd, put together as in `uniforms`.
    """
    count, num_blocks = len(uniforms), (num_levels + 1) // 2
    keys = (uniforms * _UNIT_STEPS).astype(np.uint64)
    counters = np.zeros((4, count, num_blocks), dtype=np.uint64)
    counters[0] = np.arange(num_blocks, dtype=np.uint64)
    counters[3] = 1
    words = philox(counters.reshape(4, -1), np.repeat(keys, num_blocks))
    levels = _units(words[0::2], words[1::2]).T  # [n * blocks, 2]
    return levels.reshape(count, 2 * num_blocks)[:, :num_levels]


def _units(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return (high >> 5) * 2**26 + (low >> 6), times 2**-53, of 32-bit words."""
    steps = ((high >> np.uint64(5)) << np.uint64(26)) + (low >> np.uint64(6))
    units: NDArray[np.float64] = steps.astype(np.float64)
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
    rounds = np.arange(_ROUNDS, dtype=np.uint64)[:, None, None]
    round_keys = (np.stack((keys & mask, keys >> shift)) + rounds * weyl) & mask  # [rounds, 2, n]
    multiplied, xored = counters[0::2], counters[1::2]  # words 0 and 2, words 1 and 3
    for key in round_keys:
        product = multiplied * multipliers
        multiplied = (product >> shift)[::-1] ^ xored ^ key
        xored = (product & mask)[::-1]
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
