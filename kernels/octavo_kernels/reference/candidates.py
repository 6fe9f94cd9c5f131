"""The likeliest few tokens of each row of logits, without sorting the vocabulary.

Knows values and ids. Does not know probabilities, parameters or what the tokens are for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from octavo_kernels.reference.arrays import to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# A large row is cut into strided blocks of so many elements; only blocks whose maximum is among
# the largest are looked into.
_BLOCK: Final = 16
_ID_MASK: Final = 0xFFFFFFFF
_SIGN_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Candidates:
    """The largest values of each row with their ids, largest first, equal ones by lower id.

    The first `known[i]` of row i are certain to be exactly the row's largest. What follows may
    stand for others of the same value that were left out, unless `is_complete[i]`: then every
    value of the row above -inf is among the known ones.
    """

    values: NDArray[np.float32]  # [rows, count]
    ids: NDArray[np.int64]  # [rows, count]
    known: NDArray[np.int64]  # [rows]
    is_complete: NDArray[np.bool_]  # [rows]


def likeliest(x: Tensor, count: int) -> Candidates:
    """Find the `count` largest values of each row of x: float32 [rows, n], contiguous, no NaN."""
    width = x.shape[1]
    if width <= count:
        values, ids = x, torch.arange(width, device=x.device).expand(x.shape)
    elif width < 2 * _BLOCK * count:
        values, ids = x.topk(count, sorted=False)
    else:
        values, ids = _from_blocks(x, count)
    sorted_values, sorted_ids = _sorted(to_numpy(values), to_numpy(ids))
    if width <= count:
        floor = np.full((x.shape[0], 1), -math.inf, dtype=np.float32)
    else:
        floor = sorted_values[:, -1:]
    known = np.count_nonzero(sorted_values > floor, axis=1).astype(np.int64)
    return Candidates(sorted_values, sorted_ids, known, floor[:, 0] == -math.inf)


def _from_blocks(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Look into the `count` blocks with the largest maxima, which hold the `count` largest values.

    Element i of block j is x[i * stride + j], so that the maxima are found in vector operations.
    What remains behind the last whole block always takes part.
    """
    rows, width = x.shape
    stride = width // _BLOCK
    whole = stride * _BLOCK
    maxima = x[:, :whole].reshape(rows, _BLOCK, stride).amax(1)  # [rows, stride]
    blocks = maxima.topk(count, sorted=False)[1]  # [rows, count]
    starts = torch.arange(0, whole, stride, device=x.device)[:, None]
    ids = (blocks[:, None, :] + starts).view(rows, -1)
    if whole < width:
        rest = torch.arange(whole, width, device=x.device).expand(rows, -1)
        ids = torch.cat((ids, rest), 1)
    values, places = x.gather(1, ids).topk(count, sorted=False)
    return values, ids.gather(1, places)


def _sorted(
    values: NDArray[np.float32], ids: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Sort rows by value, largest first, then by id.

    One sort of integers: the value in the upper half, its bits ordered as the float is; the id,
    counted down, in the lower half.
    """
    bits = (values + np.float32(0.0)).view(np.int32)  # the sum turns -0.0, equal to 0.0, into it
    ordered = np.where(bits < 0, bits ^ _SIGN_MASK, bits).astype(np.int64)
    keys = np.sort((ordered << 32) | (_ID_MASK - ids), axis=1)[:, ::-1]
    high = (keys >> 32).astype(np.int32)
    sorted_values = np.where(high < 0, high ^ _SIGN_MASK, high).astype(np.int32).view(np.float32)
    return sorted_values, _ID_MASK - (keys & _ID_MASK)
