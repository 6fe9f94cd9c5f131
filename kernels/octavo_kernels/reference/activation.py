"""Gated activations and soft caps, in plain torch.

Knows a row that holds gate and up side by side. Does not know the layers that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor


def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    """Set out = silu(gate) * up.  gate_up: [n, 2 * f] (gate first), out: [n, f], apart from it."""
    gate, up = _halves(gate_up)
    torch.ops.aten.silu.out(gate, out=out)
    out.mul_(up)


def gelu_mul(gate_up: Tensor, out: Tensor, approximate: Literal["none", "tanh"] = "tanh") -> None:
    """Set out = gelu(gate) * up, shapes as in `silu_mul`.  "none" is the exact gelu, by erf."""
    gate, up = _halves(gate_up)
    torch.ops.aten.gelu.out(gate, approximate=approximate, out=out)
    out.mul_(up)


def soft_cap(x: Tensor, cap: float) -> None:
    """Set x = cap * tanh(x / cap), in place."""
    x.div_(cap).tanh_().mul_(cap)


def _halves(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    width = gate_up.shape[-1] // 2
    return gate_up[..., :width], gate_up[..., width:]
