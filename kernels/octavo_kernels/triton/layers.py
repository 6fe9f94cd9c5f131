"""Launches the Triton kernels between the matrix products: norms, rotary, gated activations.

Each does what the function of its name in `octavo_kernels.reference` does, in float32, float16 or
bfloat16; vectors must be contiguous, tokens and heads may be strided. Knows tensors and shapes.
Does not know layers or batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octavo_kernels.triton.arguments import RotaryShape, RowShape, power_of_two, rows_of
from octavo_kernels.triton.devices import kernels_for

if TYPE_CHECKING:
    from torch import Tensor

# Elements of a gated activation that one program computes.
_SPAN: Final = 1024
_OPTIONS: Final = {"num_warps": 4, "enable_fp_fusion": False}


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    """Set out = x / sqrt(mean(x * x) + eps) * weight, over the last dimension.

    x, out: [n, d] or [n, heads, d] (`out` may be `x`), weight: [d]. The normalised row is rounded
    to x's dtype before it is multiplied by the weight, as in Hugging Face's Llama.
    """
    if not x.numel():
        return
    heads = x.shape[1] if x.dim() > 2 else 1  # noqa: PLR2004 - heads or none
    shape = RowShape(x.shape[-1], power_of_two(x.shape[-1]), heads)
    kernels = kernels_for(x, "layer_kernels")
    kernels.rms_norm[len(x), heads](rows_of(out), rows_of(x), weight, eps, shape, **_OPTIONS)


def add_rms_norm(residual: Tensor, delta: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    """Add delta to residual (in place), then out = rms_norm(residual).  All [n, d]."""
    if not len(residual):
        return
    shape = RowShape(residual.shape[-1], power_of_two(residual.shape[-1]))
    kernels = kernels_for(residual, "layer_kernels")
    kernels.add_rms_norm[(len(residual),)](
        rows_of(out), rows_of(residual), rows_of(delta), weight, eps, shape, **_OPTIONS
    )


def rotate(q: Tensor, k: Tensor, table: Tensor, positions: Tensor) -> None:
    """Rotate q [n, heads, d] and k [n, kv_heads, d] in place, at positions [n].

    table: float32 [max_positions, 2, dim / 2] with dim <= d, as `rope_table` makes it. Pairs are
    (i, i + dim / 2), as in `octavo_kernels.reference.rotary.rotate`.
    """
    if not len(q):
        return
    half = table.shape[-1]
    shape = RotaryShape(q.shape[1], k.shape[1], half, power_of_two(half))
    kernels = kernels_for(q, "layer_kernels")
    kernels.rotate[(len(q),)](rows_of(q), rows_of(k), table, positions, shape, **_OPTIONS)


def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    """Set out = silu(gate) * up.  gate_up: [n, 2 * f] (gate first), out: [n, f], apart from it."""
    _gated(gate_up, out, is_gelu=False)


def gelu_mul(gate_up: Tensor, out: Tensor) -> None:
    """Set out = gelu(gate) * up, gelu by tanh.  Shapes as in `silu_mul`."""
    _gated(gate_up, out, is_gelu=True)


def _gated(gate_up: Tensor, out: Tensor, *, is_gelu: bool) -> None:
    if not len(out):
        return
    width = out.shape[-1]
    shape = RowShape(width, min(_SPAN, power_of_two(width)))
    grid = (len(out), -(-width // shape.padded))
    kernels = kernels_for(out, "layer_kernels")
    kernels.gated[grid](rows_of(out), rows_of(gate_up), shape, is_gelu, **_OPTIONS)
