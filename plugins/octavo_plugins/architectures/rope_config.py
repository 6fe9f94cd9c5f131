"""Reads how a config asks for rotary embedding, in both of Hugging Face's spellings.

Knows keys and values of configs. Does not know tables, angles or layers: an op set makes those
from the `RotaryConfig` returned here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelLoadError, did_you_mean
from octavo.interfaces.architecture import RotaryConfig
from octavo_plugins.architectures.config_values import invalid_key, is_number, mapping, number

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
#: the types whose stretch a checkpoint's `max_position_embeddings` includes
STRETCHED: Final = ("linear", "yarn")


def read_rotary(
    config: Mapping[str, Any], head_dim: int, max_positions: int, default_theta: float
) -> RotaryConfig:
    """Return the rotary settings of a config.

    `max_positions` is the config's `max_position_embeddings`, which a checkpoint states with what
    yarn and linear scaling add. Newer configs hold `rope_parameters` with `rope_theta` inside;
    older ones `rope_theta` beside `rope_scaling`, whose type may be called `type`. As in
    transformers, `rope_scaling` wins where both are there.

    Raises ModelLoadError for an unknown type, and for numbers that are missing or not numbers.
    """
    parameters = mapping(config, "rope_parameters")
    scaling = dict(mapping(config, "rope_scaling") or parameters)
    rope_type = scaling.pop("rope_type", None) or scaling.get("type") or "default"
    if not isinstance(rope_type, str) or rope_type not in ROPE_TYPES:
        raise ModelLoadError(
            f"unknown rope_type {rope_type!r} (rope_parameters of the model's config)",
            did_you_mean(str(rope_type), ROPE_TYPES),
            f"valid: {', '.join(ROPE_TYPES)}",
        )
    stated = _stated_original(config, scaling, rope_type)
    if rope_type == "yarn" and scaling.get("factor") is None and stated is not None:
        scaling["factor"] = max_positions / stated
    for key in ROPE_TYPES[rope_type]:
        _check_number(scaling, key, rope_type)
    if stated is None:
        stated = (
            round(max_positions / scaling["factor"]) if rope_type in STRETCHED else max_positions
        )
    scaling["original_max_position_embeddings"] = stated
    sources = (scaling, config, parameters)
    partial = _number(*sources, key="partial_rotary_factor", default=1.0)
    factors = config.get("rope_frequency_factors")
    return RotaryConfig(
        head_dim=head_dim,
        theta=_number(*sources, key="rope_theta", default=default_theta),
        scaling={"rope_type": rope_type, **scaling},
        partial_factor=partial,
        original_max_positions=stated,
        frequency_factors=None if factors is None else tuple(float(factor) for factor in factors),
    )


def longest_context(rotary: RotaryConfig, max_positions: int) -> int:
    """Return how many positions the model may see: `max_positions`, unless scaling adds to them.

    What linear and yarn scaling add is stated already, except in a config that nobody completed.
    `dynamic` stretches from the stated length on; `llama3` configs state the length after it.
    """
    scaling, original = rotary.scaling, rotary.original_max_positions
    if scaling["rope_type"] not in ("dynamic", *STRETCHED) or original is None:
        return max_positions
    return max(max_positions, int(original * scaling["factor"]))


def _stated_original(
    config: Mapping[str, Any], scaling: Mapping[str, Any], rope_type: str
) -> int | None:
    """Return the length before scaling, where the config says so and transformers listens."""
    key = "original_max_position_embeddings"
    places = {"llama3": (config, scaling), "yarn": (config, scaling), "linear": (scaling,)}
    stated = _first(*places.get(rope_type, ()), key=key, default=None)
    if stated is None or is_number(stated):
        return None if stated is None else int(stated)
    raise invalid_key({key: stated}, key, "a whole number above 0")


def _check_number(scaling: Mapping[str, Any], key: str, rope_type: str) -> None:
    value = scaling.get(key)
    if is_number(value):
        return
    raise ModelLoadError(
        f"bad {key} {value!r} for rope_type {rope_type!r} (rope_parameters of the model's config)",
        "valid: a number above 0",
    )


def _first(*sources: Mapping[str, Any], key: str, default: float | None) -> Any:
    return next((source[key] for source in sources if source.get(key) is not None), default)


def _number(*sources: Mapping[str, Any], key: str, default: float) -> float:
    """Return the first that is stated. Raises ModelLoadError unless it is a number above 0."""
    return number({key: _first(*sources, key=key, default=default)}, key)
