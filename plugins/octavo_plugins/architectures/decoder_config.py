"""Reads a Hugging Face config of the Llama family into one plain description.

Knows the keys, and what each family fixes or assumes where a config says nothing. Does not know
weights, ops or file formats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from octavo.errors import ModelLoadError, did_you_mean
from octavo_plugins.architectures.config_values import (
    invalid_key,
    layer_types,
    number,
    whole,
)
from octavo_plugins.architectures.rope_config import longest_context, read_rotary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.interfaces.architecture import RotaryConfig

#: whether a linear has a bias; "maybe" = the checkpoint decides
Bias = Literal["yes", "no", "maybe"]

_THETA: Final = 10_000.0
LAYER_TYPES: Final = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True)
class Family:
    """What one class of transformers fixes, and its defaults where they are not `DEFAULTS`.

    `qkv_bias`, `output_bias` and `mlp_bias` are fixed answers; None leaves it to the config.
    `windows` says which layers attend to a window: none, all, those from `max_window_layers`
    on, or those without rotary embedding. An explicit `layer_types` overrules all but "none".
    `activations` are the names that the config's `activation_key` may hold: all of one function.
    """

    qkv_bias: Bias | None = "no"
    output_bias: Bias | None = "no"
    mlp_bias: Bias | None = "no"
    has_qk_norm: bool = False
    has_rope_switch: bool = False
    windows: Literal["none", "all", "upper-layers", "no-rope-layers"] = "none"
    activation_key: str = "hidden_act"
    activations: tuple[str, ...] = ("silu", "swish")
    defaults: Mapping[str, Any] = field(default_factory=dict)


DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "num_key_value_heads": None,
        "head_dim": None,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 28,
        "layer_types": None,
        "no_rope_layers": None,
        "no_rope_layer_interval": 4,
    }
)

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "LlamaForCausalLM": Family(
            qkv_bias=None,
            output_bias=None,
            mlp_bias=None,
            defaults={"max_position_embeddings": 2048},
        ),
        "MistralForCausalLM": Family(
            windows="all",
            defaults={
                "num_key_value_heads": 8,
                "sliding_window": 4096,
                "max_position_embeddings": 131072,
            },
        ),
        "Qwen2ForCausalLM": Family(
            qkv_bias="yes",
            windows="upper-layers",
            defaults={"sliding_window": 4096, "num_key_value_heads": 32},
        ),
        "Qwen3ForCausalLM": Family(
            qkv_bias=None,
            output_bias=None,
            has_qk_norm=True,
            windows="upper-layers",
            defaults={"sliding_window": 4096, "num_key_value_heads": 32, "head_dim": 128},
        ),
        "SmolLM3ForCausalLM": Family(
            qkv_bias=None,
            output_bias=None,
            mlp_bias=None,
            has_rope_switch=True,
            windows="no-rope-layers",
            defaults={
                "num_key_value_heads": 4,
                "rope_theta": 2_000_000.0,
                "tie_word_embeddings": True,
            },
        ),
    }
)


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A decoder of the Llama family. `windows` and `has_rotary` have one entry per layer."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    is_tied: bool
    qkv_bias: Bias
    output_bias: Bias
    mlp_bias: Bias
    has_qk_norm: bool
    windows: tuple[int | None, ...]
    has_rotary: tuple[bool, ...]
    rotary: RotaryConfig
    max_positions: int
    attention_scale: float
    attention_softcap: float | None = None


def read_decoder_config(
    raw: Mapping[str, Any], families: Mapping[str, Family] = FAMILIES
) -> DecoderConfig:
    """Return the description of a config of one of `families`, which are looked up by class.

    Raises ModelLoadError that names the key, its value and what would be valid.
    """
    family = _family(raw, families)
    # a key that is absent has the family's default; one that says null keeps saying so
    config = {**DEFAULTS, **family.defaults, **raw}
    if config[family.activation_key] not in family.activations:
        raise invalid_key(raw, family.activation_key, " or ".join(family.activations))
    num_layers = whole(config, "num_hidden_layers")
    num_heads, num_kv_heads = _heads(config)
    hidden_size = whole(config, "hidden_size")
    head_dim = whole(config, "head_dim", hidden_size // num_heads)
    if head_dim % 2:
        raise invalid_key(config, "head_dim", "an even number")
    positions = whole(config, "max_position_embeddings")
    rotary = read_rotary(raw, head_dim, positions, family.defaults.get("rope_theta", _THETA))
    has_rotary = _rotary_layers(config, family, num_layers)
    return DecoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=whole(config, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=number(config, "rms_norm_eps"),
        is_tied=bool(config["tie_word_embeddings"]),
        qkv_bias=family.qkv_bias or _bias(raw, "attention_bias"),
        output_bias=family.output_bias or _bias(raw, "attention_bias"),
        mlp_bias=family.mlp_bias or _bias(raw, "mlp_bias"),
        has_qk_norm=family.has_qk_norm,
        windows=_windows(config, family, has_rotary),
        has_rotary=has_rotary,
        rotary=rotary,
        max_positions=longest_context(rotary, positions),
        attention_scale=head_dim**-0.5,
    )


def _family(raw: Mapping[str, Any], families: Mapping[str, Family]) -> Family:
    names = raw.get("architectures") or []
    for name in names:
        if name in families:
            return families[name]
    asked = ", ".join(map(str, names))
    raise ModelLoadError(
        f"unknown architecture {asked!r} (architectures in the model's config)",
        did_you_mean(asked, families),
        f"this class serves: {', '.join(families)}",
    )


def _heads(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the heads of queries, and those of keys and values."""
    num_heads = whole(config, "num_attention_heads")
    num_kv_heads = whole(config, "num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        valid = f"a divisor of {num_heads} attention heads"
        raise invalid_key(config, "num_key_value_heads", valid)
    return num_heads, num_kv_heads


def _rotary_layers(config: Mapping[str, Any], family: Family, num_layers: int) -> tuple[bool, ...]:
    if not family.has_rope_switch:
        return (True,) * num_layers
    if config["no_rope_layers"] is None:
        interval = whole(config, "no_rope_layer_interval")
        return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    switches = config["no_rope_layers"]  # 1 = rotary
    if not isinstance(switches, list | tuple) or len(switches) < num_layers:
        raise invalid_key(config, "no_rope_layers", f"a list of {num_layers} zeros and ones")
    return tuple(bool(switch) for switch in switches[:num_layers])


def _windows(
    config: Mapping[str, Any], family: Family, has_rotary: tuple[bool, ...]
) -> tuple[int | None, ...]:
    num_layers = len(has_rotary)
    types, window = config["layer_types"], config["sliding_window"]
    is_off = family.windows == "upper-layers" and not config["use_sliding_window"]
    if family.windows == "none" or window is None or is_off:
        return (None,) * num_layers
    window = whole(config, "sliding_window")
    if types is not None:
        kinds = layer_types(config, num_layers, LAYER_TYPES, " or ".join(LAYER_TYPES))
        slides = [kind == "sliding_attention" for kind in kinds]
    elif family.windows == "all":
        slides = [True] * num_layers
    elif family.windows == "upper-layers":
        first = config["max_window_layers"]
        if not isinstance(first, int):
            raise invalid_key(config, "max_window_layers", "a whole number")
        slides = [layer >= first for layer in range(num_layers)]
    else:
        slides = [config["use_sliding_window"] and not rotary for rotary in has_rotary]
    return tuple(window if is_sliding else None for is_sliding in slides)


def _bias(raw: Mapping[str, Any], key: str) -> Bias:
    if raw.get(key) is None:
        return "maybe"
    return "yes" if raw[key] else "no"
