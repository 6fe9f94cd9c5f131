"""Reads how a config asks for rotary embedding, in both of Hugging Face's spellings.

Knows keys and values of configs. Does not know tables, angles or layers: an op set makes those
from the `RotaryConfig` returned here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelLoadError, did_you_mean
from octavo.interfaces.architecture import RotaryConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

#: the rope types that can be read, each with the numbers it cannot do without
ROPE_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}


def read_rotary(
    config: Mapping[str, Any], head_dim: int, trained_positions: int, default_theta: float
) -> RotaryConfig:
    """Return the rotary settings of a config.

    `trained_positions` is the config's `max_position_embeddings`. Newer configs hold
    `rope_parameters` with `rope_theta` inside; older ones `rope_theta` beside `rope_scaling`,
    whose type may be called `type`. As in transformers, `rope_scaling` wins where both are there.

    Raises ModelLoadError for an unknown type, and for numbers that are missing or not numbers.
    """
    parameters = config.get("rope_parameters") or {}
    scaling = dict(config.get("rope_scaling") or parameters)
    rope_type = scaling.pop("rope_type", None) or scaling.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise ModelLoadError(
            f"unknown rope_type {rope_type!r} (rope_parameters of the model's config)",
            did_you_mean(str(rope_type), ROPE_TYPES),
            f"valid: {', '.join(ROPE_TYPES)}",
        )
    original = _original_positions(config, scaling, rope_type, trained_positions)
    if rope_type == "yarn" and scaling.get("factor") is None:
        scaling["factor"] = trained_positions / original
    for key in ROPE_TYPES[rope_type]:
        _check_number(scaling, key, rope_type)
    theta = _first(scaling, config, parameters, key="rope_theta", default=default_theta)
    partial = _first(scaling, config, parameters, key="partial_rotary_factor", default=1.0)
    factors = config.get("rope_frequency_factors")
    return RotaryConfig(
        head_dim=head_dim,
        theta=float(theta),
        scaling={"rope_type": rope_type, **scaling},
        partial_factor=float(partial),
        original_max_positions=original,
        frequency_factors=None if factors is None else tuple(float(factor) for factor in factors),
    )


def longest_context(rotary: RotaryConfig, trained_positions: int) -> int:
    """Return how many positions the model may see, with what its rope scaling adds.

    Some configs state `max_position_embeddings` before scaling and some after. Where the
    scaling names its original length, that decides; else `linear` and `dynamic` multiply what
    is stated. `llama3` always states the length after scaling.
    """
    rope_type = rotary.scaling["rope_type"]
    if rope_type not in ("linear", "dynamic", "yarn"):
        return trained_positions
    original = rotary.scaling.get("original_max_position_embeddings")
    if original is None:
        original = rotary.original_max_positions or trained_positions
    return max(trained_positions, int(original * rotary.scaling["factor"]))


def _original_positions(
    config: Mapping[str, Any], scaling: Mapping[str, Any], rope_type: str, trained_positions: int
) -> int:
    # `dynamic` stretches from max_position_embeddings itself, whatever else the config says
    if rope_type in ("llama3", "yarn"):
        for source in (config, scaling):
            if source.get("original_max_position_embeddings") is not None:
                return int(source["original_max_position_embeddings"])
    return trained_positions


def _check_number(scaling: Mapping[str, Any], key: str, rope_type: str) -> None:
    value = scaling.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return
    raise ModelLoadError(
        f"bad {key} {value!r} for rope_type {rope_type!r} (rope_parameters of the model's config)",
        "valid: a number above 0",
    )


def _first(*sources: Mapping[str, Any], key: str, default: float) -> Any:
    return next((source[key] for source in sources if source.get(key) is not None), default)
