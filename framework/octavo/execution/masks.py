"""Masks of tokens, packed into bits: how a grammar says what may come next.

Knows bits and logits. Does not know grammars.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def apply_mask(logits: Tensor, mask: NDArray[np.uint32]) -> None:
    """Set the logits [vocab] of tokens that a mask does not allow to -inf.

    mask: uint32 [ceil(vocab / 32)]; token t is bit t % 32 of word t // 32.
    """
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: logits.shape[0]]
    logits.masked_fill_(torch.from_numpy(bits == 0), -math.inf)
