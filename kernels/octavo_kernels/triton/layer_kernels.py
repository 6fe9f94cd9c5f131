"""Norms, rotary embedding and gated activations in Triton, one token at a time.

A program reads and writes its own row alone, and its sums have a shape that the row's width
decides: a row's bits do not depend on the others. All arithmetic is in float32.

Knows rows. Does not know layers, batches or how many rows are live.
"""

import triton
import triton.language as tl

from octavo_kernels.triton.arguments import Rows

_LOG2_E = tl.constexpr(1.4426950408889634)
# gelu by tanh is gate * sigmoid(2 * sqrt(2 / pi) * (gate + 0.044715 * gate ** 3))
_GELU_SLOPE = tl.constexpr(1.5957691216057308)
_GELU_CUBE = tl.constexpr(0.044715)


@triton.jit
def rms_norm(out: Rows, x: Rows, weight: tl.tensor, eps: float, shape: tl.constexpr) -> None:
    """Normalise one vector; `out` may be `x`.  Grid: (tokens, heads)."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dim = tl.arange(0, shape.padded)
    is_cell = dim < shape.width
    row = x.data + token * x.token_stride + head * x.head_stride
    values = tl.load(row + dim, mask=is_cell, other=0.0)
    normed = _normed(values, weight, eps, shape)
    to = out.data + token * out.token_stride + head * out.head_stride
    tl.store(to + dim, normed.to(out.data.dtype.element_ty), mask=is_cell)


@triton.jit
def add_rms_norm(  # noqa: PLR0917 - two buffers and what is added, weight and number of the norm
    out: Rows, residual: Rows, delta: Rows, weight: tl.tensor, eps: float, shape: tl.constexpr
) -> None:
    """Add one row to the residual, in place, and normalise the sum.  Grid: (tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    dim = tl.arange(0, shape.padded)
    is_cell = dim < shape.width
    row = residual.data + token * residual.token_stride + dim
    added = tl.load(delta.data + token * delta.token_stride + dim, mask=is_cell, other=0.0)
    before = tl.load(row, mask=is_cell, other=0.0)
    values = (before.to(tl.float32) + added.to(tl.float32)).to(before.dtype)
    tl.store(row, values, mask=is_cell)
    normed = _normed(values, weight, eps, shape)
    to = out.data + token * out.token_stride + dim
    tl.store(to, normed.to(out.data.dtype.element_ty), mask=is_cell)


@triton.jit
def _normed(values: tl.tensor, weight: tl.tensor, eps: float, shape: tl.constexpr) -> tl.tensor:
    """Return a row divided by its root mean square, rounded to its own type, times the weight."""
    dim = tl.arange(0, shape.padded)
    wide = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / shape.width + eps)
    weights = tl.load(weight + dim, mask=dim < shape.width, other=0.0).to(tl.float32)
    return (wide * scale).to(values.dtype).to(tl.float32) * weights


@triton.jit
def rotate(q: Rows, k: Rows, table: tl.tensor, positions: tl.tensor, shape: tl.constexpr) -> None:
    """Rotate one token's queries and keys in place.  Grid: (tokens,).

    table: float32 [positions, 2, half], cosines and sines.
    """
    token = tl.program_id(0)
    position = tl.load(positions + token).to(tl.int64)
    pair = tl.arange(0, shape.padded_half)
    is_pair = pair < shape.half
    angles = table + position * (2 * shape.half) + pair
    cos = tl.load(angles, mask=is_pair, other=0.0)
    sin = tl.load(angles + shape.half, mask=is_pair, other=0.0)
    _turn(q, token, (cos, sin), shape.heads, shape)
    _turn(k, token, (cos, sin), shape.kv_heads, shape)


@triton.jit
def _turn(
    x: Rows, token: tl.tensor, angle: tl.tuple, heads: tl.constexpr, shape: tl.constexpr
) -> None:
    """Turn pairs of the halves of the first dimensions of all heads of a token."""
    head = tl.arange(0, triton.next_power_of_2(heads))
    pair = tl.arange(0, shape.padded_half)
    is_pair = (head < heads)[:, None] & (pair < shape.half)[None, :]
    row = x.data + token.to(tl.int64) * x.token_stride
    places = row + (head * x.head_stride)[:, None] + pair[None, :]
    first = tl.load(places, mask=is_pair, other=0.0).to(tl.float32)
    second = tl.load(places + shape.half, mask=is_pair, other=0.0).to(tl.float32)
    cos, sin = angle[0][None, :], angle[1][None, :]
    kind = x.data.dtype.element_ty
    tl.store(places, (first * cos - second * sin).to(kind), mask=is_pair)
    tl.store(places + shape.half, (second * cos + first * sin).to(kind), mask=is_pair)


@triton.jit
def gated(out: Rows, gate_up: Rows, shape: tl.constexpr, is_gelu: tl.constexpr) -> None:
    """Set out = silu(gate) * up, or gelu(gate) * up.  Grid: (tokens, width / padded)."""
    token = tl.program_id(0).to(tl.int64)
    dim = tl.program_id(1) * shape.padded + tl.arange(0, shape.padded)
    is_cell = dim < shape.width
    row = gate_up.data + token * gate_up.token_stride + dim
    gate = tl.load(row, mask=is_cell, other=0.0).to(tl.float32)
    up = tl.load(row + shape.width, mask=is_cell, other=0.0).to(tl.float32)
    slope = gate
    if is_gelu:
        slope = _GELU_SLOPE * (gate + _GELU_CUBE * gate * gate * gate)
    # the sigmoid by a power of two that cannot overflow
    t = tl.exp2(tl.abs(slope) * -_LOG2_E)
    result = gate * (tl.where(slope < 0, t, 1.0) / (1 + t)) * up
    to = out.data + token * out.token_stride + dim
    tl.store(to, result.to(out.data.dtype.element_ty), mask=is_cell)
