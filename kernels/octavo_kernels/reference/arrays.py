"""Small steps between tensors and numpy arrays. Knows neither's meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as an array, copying it only when it lies on a device."""
    array: NDArray[Any] = tensor.cpu().numpy()
    return array


def take_rows(x: Tensor, index: NDArray[np.int64]) -> Tensor:
    """Return rows of x [any, ...] by index [n], n > 0: a view where they follow one another."""
    first = int(index[0])
    if (index[1:] - index[:-1] == 1).all():
        return x[first : first + len(index)]
    return x.index_select(0, torch.from_numpy(index).to(x.device))
