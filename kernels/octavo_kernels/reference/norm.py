"""Root-mean-square normalisation, in plain torch.

Knows rows of numbers. Does not know layers, batches or buffers: it writes where it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    """Set out = x / sqrt(mean(x * x) + eps) * weight, over the last dimension.

    x, out: [..., d] (strided views are fine; `out` may be `x`), weight: [d]. Sums are in float32
    at least; as in Hugging Face's Llama, the normalised row is rounded to x's dtype before it is
    multiplied by the weight.
    """
    is_narrow = x.dtype.itemsize < torch.float32.itemsize
    wide = x.float() if is_narrow else x
    # the norm needs no buffer for the squares, which is what allows `out` to be `x`
    scale = torch.linalg.vector_norm(wide, 2, -1, keepdim=True)  # [..., 1]
    scale.square_().mul_(1.0 / x.shape[-1]).add_(eps).rsqrt_()
    if is_narrow:
        torch.mul((wide * scale).to(x.dtype), weight, out=out)
        return
    torch.mul(wide, scale, out=out)
    out.mul_(weight)


def add_rms_norm(residual: Tensor, delta: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    """Add delta to residual (in place), then out = rms_norm(residual).  All [..., d]."""
    residual.add_(delta)
    rms_norm(residual, weight, eps, out)
