"""Configs of tiny models of the stock families: samples of the conformance kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tiny_models
from hybrid_twin import FULL, LINEAR, SLIDING, Hybrid
from octavo.testing.tensors.model_cases import FamilySample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

#: with all that sets a family apart, and a tied head here and there
LLAMAS = ("Llama-biases", "Mistral-window", "Qwen2-layer-types", "Qwen3-full", "SmolLM3-window")
GEMMAS = ("Gemma2-capped", "Gemma3-linear")
HYBRID = Hybrid((LINEAR, SLIDING, FULL))


def config_of(variant_name: str) -> dict[str, Any]:
    """Return the config of a variant as its file would hold it."""
    variant = tiny_models.variant_named(variant_name)
    return variant.config().to_dict() | {"architectures": [f"{variant.family}ForCausalLM"]}


def llamas() -> FamilySample:
    refused = ({"hidden_act": "gelu"}, {"num_key_value_heads": 3}, {"num_hidden_layers": 0})
    return FamilySample(tuple(map(config_of, LLAMAS)), refused)


def gemmas() -> FamilySample:
    refused = ({"use_bidirectional_attention": True}, {"hidden_activation": "relu"})
    return FamilySample(tuple(map(config_of, GEMMAS)), refused)


def hybrids() -> FamilySample:
    def definition(
        config: Mapping[str, Any], weights: Mapping[str, Tensor], token_ids: list[int]
    ) -> Tensor:
        del config
        return HYBRID.logits(token_ids, weights)

    refused = ({"num_key_value_heads": 2}, {"layer_types": [LINEAR, "mamba", FULL]})
    return FamilySample((HYBRID.config,), refused, definition)
