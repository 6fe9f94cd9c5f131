"""Reads a Hugging Face config of Gemma 2 or 3 into one plain description.

Knows the keys, and what transformers' classes fix or assume where a config says nothing. Does not
know weights, ops or file formats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from octavo_plugins.architectures.config_values import (
    invalid_key,
    layer_types,
    mapping,
    number,
    number_or_null,
    whole,
)
from octavo_plugins.architectures.decoder_config import (
    LAYER_TYPES,
    DecoderConfig,
    Family,
    read_decoder_config,
)
from octavo_plugins.architectures.rope_config import read_rotary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.interfaces.architecture import RotaryConfig

GEMMA2: Final = "Gemma2ForCausalLM"
GEMMA3: Final = "Gemma3ForCausalLM"
_SHARED: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    }
)
GEMMA_FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        GEMMA2: Family(
            qkv_bias=None,
            output_bias=None,
            windows="all",
            activation_key="hidden_activation",
            activations=("gelu_pytorch_tanh",),
            defaults={**_SHARED, "max_position_embeddings": 8192},
        ),
        GEMMA3: Family(
            qkv_bias=None,
            output_bias=None,
            has_qk_norm=True,
            windows="all",
            activation_key="hidden_activation",
            activations=("gelu_pytorch_tanh",),
            defaults={**_SHARED, "max_position_embeddings": 131_072, "rope_theta": 1e6},
        ),
    }
)
#: every so-manieth layer sees all positions, where `layer_types` does not say which
PATTERNS: Final[Mapping[str, int]] = MappingProxyType({GEMMA2: 2, GEMMA3: 6})
LOCAL_THETA: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class GemmaConfig:
    """What Gemma adds to a decoder. `is_local`: which layers are of the kind that has a window.

    Those have a rotary embedding of their own, with or without a window.
    """

    decoder: DecoderConfig
    is_local: tuple[bool, ...]
    local_rotary: RotaryConfig
    embedding_scale: float
    logit_softcap: float | None


def read_gemma_config(raw: Mapping[str, Any]) -> GemmaConfig:
    """Return the description of a config.

    Raises ModelLoadError that names the key, its value and what would be valid.
    """
    family = next((name for name in raw.get("architectures") or () if name in PATTERNS), GEMMA3)
    if raw.get("use_bidirectional_attention"):
        raise invalid_key(raw, "use_bidirectional_attention", "false: each token sees those before")
    by_type = _rope_by_layer_type(raw)
    plain = {**raw, "layer_types": raw.get("layer_types") or _layer_types(raw, family)}
    if by_type:
        plain["rope_parameters"] = by_type.get("full_attention")
    decoder = read_decoder_config(plain, GEMMA_FAMILIES)
    kinds = layer_types(plain, decoder.num_layers, LAYER_TYPES, " or ".join(LAYER_TYPES))
    local = decoder.rotary
    if family == GEMMA3:
        keys = {"rope_parameters": by_type.get("sliding_attention")}
        theta = number(raw, "rope_local_base_freq", LOCAL_THETA)
        local = read_rotary(keys, decoder.head_dim, decoder.max_positions, theta)
    # Gemma 3 norms queries and keys instead; transformers does not look at a cap in its config
    softcap = number_or_null(raw, "attn_logit_softcapping", 50.0) if family == GEMMA2 else None
    scalar = number({"query_pre_attn_scalar": 256.0, **raw}, "query_pre_attn_scalar")
    return GemmaConfig(
        replace(decoder, attention_scale=scalar**-0.5, attention_softcap=softcap),
        tuple(kind == "sliding_attention" for kind in kinds),
        local,
        decoder.hidden_size**0.5,
        number_or_null(raw, "final_logit_softcapping", 30.0 if family == GEMMA2 else None),
    )


def _layer_types(raw: Mapping[str, Any], family: str) -> list[str]:
    pattern = whole({"sliding_window_pattern": PATTERNS[family], **raw}, "sliding_window_pattern")
    return [
        "sliding_attention" if (layer + 1) % pattern else "full_attention"
        for layer in range(whole(raw, "num_hidden_layers"))
    ]


def _rope_by_layer_type(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `rope_parameters` where it has an entry for each type of layer, else nothing."""
    parameters = mapping(raw, "rope_parameters")
    is_nested = any(isinstance(value, dict) for value in parameters.values())
    return parameters if is_nested else {}
