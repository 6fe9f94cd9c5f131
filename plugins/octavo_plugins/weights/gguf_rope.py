"""Translates what a GGUF file says of rotary scaling into Hugging Face's terms.

Source: llama.cpp's `llama-hparams` and its converter. Knows the `rope.*` keys and the tensor
`rope_freqs.weight`. Does not know how rotary embedding is computed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from octavo.errors import ModelLoadError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo_plugins.formats.gguf_header import GgufHeader

# Reproducing the tensor within float32's rounding tells that the explanation is the right one.
_FIT_TOLERANCE: Final = 1e-5
_MIN_FIT_POINTS: Final = 2


def rope_scaling(header: GgufHeader, architecture: str, max_positions: int) -> dict[str, Any]:
    """Return the `rope_scaling` that metadata asks for; empty when it asks for none.

    Raises ModelLoadError for a kind of scaling that is not known, or known but incomplete.
    """
    prefix = f"{architecture}.rope.scaling"
    kind = header.text(f"{prefix}.type", None)
    factor = _shortest(header.number(f"{prefix}.factor", 0.0))
    if kind is None:
        # files made before scaling had a type
        factor = factor or _shortest(header.number(f"{architecture}.rope.scale_linear", 0.0))
        kind = "linear" if factor else "none"
    if kind == "none" or (kind == "linear" and factor in {0.0, 1.0}):
        return {}
    original = header.integer(f"{prefix}.original_context_length", max_positions)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise ModelLoadError(
            f"GGUF file '{header.path}': rope scaling '{kind}' is not supported here",
            f"'{prefix}.type' may be none, linear or yarn",
        )
    if factor <= 0:
        raise ModelLoadError(
            f"GGUF file '{header.path}': '{prefix}.factor' must be above 0 for yarn",
            f"it is {factor:g}",
        )
    return _yarn(header, prefix, factor, original)


def _yarn(header: GgufHeader, prefix: str, factor: float, original: int) -> dict[str, Any]:
    if header.number(f"{prefix}.yarn_ext_factor", 1.0) != 1.0:
        raise ModelLoadError(
            f"GGUF file '{header.path}': '{prefix}.yarn_ext_factor' must be 1",
            "blending yarn with plain scaling is not supported",
        )
    scaling: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
    }
    for key, name in (
        ("yarn_attn_factor", "attention_factor"),
        ("yarn_beta_fast", "beta_fast"),
        ("yarn_beta_slow", "beta_slow"),
    ):
        value = header.number(f"{prefix}.{key}", None)
        if value is not None:
            scaling[name] = _shortest(value)
    return scaling


def max_positions_with(scaling: dict[str, Any], max_positions: int) -> int:
    """Return how many positions there are once yarn or linear scaling has stretched them.

    `context_length` is what the model was trained for; a scaling is there to go beyond it.
    """
    if scaling.get("rope_type") not in {"yarn", "linear"}:
        return max_positions
    original: int = scaling.get("original_max_position_embeddings", max_positions)
    stretched: int = round(original * scaling["factor"])
    return max(max_positions, stretched)


def explain_factors(
    factors: NDArray[np.float32], theta: float, head_dim: int
) -> dict[str, Any] | None:
    """Return the `llama3` scaling that gives these divisors of the frequencies, or None.

    Llama 3 divides low frequencies by `factor`, leaves high ones alone, and blends between:
    1/f = (1 - s)/factor + s, with s = (original/wavelength - low)/(high - low). So s is linear
    in 1/wavelength, and a line through the blended ones gives everything but a common scale,
    which `low_freq_factor = 1` fixes. The converter wrote the tensor from such a config.
    """
    exact = factors.astype(np.float64)
    factor = float(exact.max())
    is_blended = (exact > 1 + _FIT_TOLERANCE) & (exact < factor * (1 - _FIT_TOLERANCE))
    if factor <= 1 + _FIT_TOLERANCE or is_blended.sum() < _MIN_FIT_POINTS:
        return None
    exponents = np.arange(0, 2 * len(exact), 2) / head_dim
    per_wavelength = theta**-exponents / (2 * math.pi)
    smooth = (1 / exact - 1 / factor) / (1 - 1 / factor)
    slope, intercept = np.polyfit(per_wavelength[is_blended], smooth[is_blended], 1)
    if slope <= 0 or intercept >= 0:
        return None
    high = round(1 - 1 / intercept, 4)
    original = round(slope * (high - 1))
    blend = (original * per_wavelength - 1) / (high - 1)
    expected = 1 / ((1 - np.clip(blend, 0, 1)) / factor + np.clip(blend, 0, 1))
    if not np.allclose(expected, exact, rtol=_FIT_TOLERANCE, atol=0):
        return None
    return {
        "rope_type": "llama3",
        "factor": _shortest(factor),
        "low_freq_factor": 1.0,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _shortest(value: float) -> float:
    """Return the shortest decimal that is the same float32: 1e-05, not 9.999999747e-06."""
    return float(str(np.float32(value)))
