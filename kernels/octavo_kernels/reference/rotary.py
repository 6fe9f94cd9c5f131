"""Rotary position embedding: tables of cosines and sines, and the rotation, in plain torch.

Knows Hugging Face's rope types (`default`, `linear`, `dynamic`, `llama3`, `yarn`) and GGUF's
frequency factors. Computes them in float32, operation by operation as transformers does, since
at long positions the rounding of an angle is larger than that of everything else. Rotates the
first and second half of a head against each other (NeoX style); weights meant for neighbouring
pairs have to be permuted when they are loaded. Does not know models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

ROPE_TYPES: Final = ("default", "linear", "dynamic", "llama3", "yarn")
# Keeps yarn's ramp finite when both of its ends fall on one dimension.
_RAMP_GAP: Final = 0.001


@dataclass(frozen=True, slots=True)
class Rope:
    """How positions turn into angles.

    `scaling` is Hugging Face's mapping (`rope_type`, `factor`, ...). `partial_factor` is the
    share of a head that is rotated. `original_max_positions` is the trained context, where
    `scaling` does not say `original_max_position_embeddings`. `frequency_factors` divide the
    inverse frequencies one by one.
    """

    head_dim: int
    theta: float
    scaling: Mapping[str, Any] = field(default_factory=dict)
    partial_factor: float = 1.0
    original_max_positions: int | None = None
    frequency_factors: tuple[float, ...] | None = None

    @property
    def rotary_dim(self) -> int:
        """Return how many elements of a head are rotated."""
        return int(self.head_dim * self.partial_factor)

    @property
    def rope_type(self) -> str:
        """Return the type's name, which older configs call `type`."""
        return str(self.scaling.get("rope_type") or self.scaling.get("type") or "default")


def rope_table(rope: Rope, max_positions: int) -> Tensor:
    """Return cosines and sines for positions 0 .. max_positions: float32 [positions, 2, dim / 2].

    The attention factor of yarn is multiplied in. With `dynamic`, position p always has the base
    of a sequence of p + 1: a table that changed with the length would contradict keys that are in
    the cache already. Raises
    ValueError for an unknown rope type, a missing key, or as many frequency factors as do not fit.
    """
    frequencies, attention_factor = inverse_frequencies(rope, max_positions)
    positions = torch.arange(max_positions, dtype=torch.float32)
    angles = positions[:, None] * frequencies  # [positions, dim / 2]
    table = torch.stack((angles.cos(), angles.sin()), dim=1)
    return table.mul_(attention_factor)


def rotate(x: Tensor, cos_sin: Tensor) -> None:
    """Rotate the heads of x [n, heads, d] in place, by cos_sin [n, 2, dim / 2], dim <= d.

    x1, x2 = x1 * cos - x2 * sin, x2 * cos + x1 * sin, of the halves of the first dim elements.
    """
    half = cos_sin.shape[-1]
    cos, sin = cos_sin[:, None, 0], cos_sin[:, None, 1]  # [n, 1, dim / 2]
    first, second = x[..., :half], x[..., half : 2 * half]
    crossed = first * sin
    first.mul_(cos).addcmul_(second, sin, value=-1)
    second.mul_(cos).add_(crossed)


def inverse_frequencies(rope: Rope, max_positions: int) -> tuple[Tensor, float]:
    """Return the inverse frequencies, and the factor of cos and sin.

    float32 [rotary_dim / 2], or [max_positions, rotary_dim / 2] where they depend on the position.
    """
    build = _BUILDERS.get(rope.rope_type)
    if build is None:
        raise ValueError(f"unknown rope type '{rope.rope_type}'; known are {', '.join(ROPE_TYPES)}")
    try:
        frequencies, attention_factor = build(rope, max_positions)
    except KeyError as error:
        raise ValueError(f"rope type '{rope.rope_type}' needs {error}") from error
    if rope.frequency_factors is not None:
        factors = torch.tensor(rope.frequency_factors, dtype=torch.float32)
        if factors.numel() != frequencies.shape[-1]:
            raise ValueError(
                f"{factors.numel()} frequency factors for {frequencies.shape[-1]} frequencies"
            )
        frequencies = frequencies / factors
    return frequencies, attention_factor


def _wavelengths(rope: Rope, base: float | Tensor) -> Tensor:
    """Return base ** (2 i / dim), float32 [dim / 2]."""
    dim = rope.rotary_dim
    return base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def _original_positions(rope: Rope, max_positions: int) -> int:
    original = rope.scaling.get("original_max_position_embeddings") or rope.original_max_positions
    return int(original or max_positions)


def _default(rope: Rope, max_positions: int) -> tuple[Tensor, float]:
    del max_positions
    return 1.0 / _wavelengths(rope, rope.theta), 1.0


def _linear(rope: Rope, max_positions: int) -> tuple[Tensor, float]:
    del max_positions
    return 1.0 / _wavelengths(rope, rope.theta) / rope.scaling["factor"], 1.0


def _dynamic(rope: Rope, max_positions: int) -> tuple[Tensor, float]:
    factor, dim = rope.scaling["factor"], rope.rotary_dim
    original = _original_positions(rope, max_positions)
    # position p always gets the base of a sequence of p + 1: what decoding with a cache does
    lengths = torch.arange(1, max_positions + 1, dtype=torch.float32).clamp(min=original)[:, None]
    stretch = factor * lengths / original - (factor - 1)
    return 1.0 / _wavelengths(rope, rope.theta * stretch ** (dim / (dim - 2))), 1.0


def _llama3(rope: Rope, max_positions: int) -> tuple[Tensor, float]:
    factor = rope.scaling["factor"]
    low, high = rope.scaling["low_freq_factor"], rope.scaling["high_freq_factor"]
    original = _original_positions(rope, max_positions)
    plain = 1.0 / _wavelengths(rope, rope.theta)
    lengths = 2 * math.pi / plain
    is_long = lengths > original / low
    is_medium = ~is_long & (lengths >= original / high)
    smooth = (original / lengths - low) / (high - low)
    blended = (1 - smooth) * plain / factor + smooth * plain
    scaled = torch.where(is_long, plain / factor, plain)
    return torch.where(is_medium, blended, scaled), 1.0


def _yarn(rope: Rope, max_positions: int) -> tuple[Tensor, float]:
    scaling, dim = rope.scaling, rope.rotary_dim
    original = _original_positions(rope, max_positions)
    factor = scaling.get("factor") or max_positions / original
    lengths = _wavelengths(rope, rope.theta)
    extrapolated, interpolated = 1.0 / lengths, 1.0 / (factor * lengths)
    low = _yarn_dimension(rope, original, scaling.get("beta_fast") or 32)
    high = _yarn_dimension(rope, original, scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    gap = high - low if high != low else _RAMP_GAP
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / gap).clamp(0, 1)
    keep = 1 - ramp
    return interpolated * (1 - keep) + extrapolated * keep, _yarn_attention(scaling, factor)


def _yarn_dimension(rope: Rope, original: int, rotations: float) -> float:
    """Return the dimension that turns `rotations` times within the original context."""
    turns = math.log(original / (rotations * 2 * math.pi))
    return rope.rotary_dim * turns / (2 * math.log(rope.theta))


def _yarn_attention(scaling: Mapping[str, Any], factor: float) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])

    def magnitude(share: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0

    mscale, all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and all_dim:
        return magnitude(mscale) / magnitude(all_dim)
    return magnitude(1)


_BUILDERS: Final = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
}
