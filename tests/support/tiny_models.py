"""Tiny random models of every family, made by transformers, and its logits for them.

A variant is a name, a transformers config class and what is particular about it. Weights are
drawn so that every tensor matters: norms differ from one, biases from zero, logits from noise.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
FULL, SLIDING = "full_attention", "sliding_attention"
CONFIG_CLASSES = {"Gemma3": "Gemma3TextConfig"}
#: families whose norms multiply by one more than their weights
NORMS_LESS_ONE = ("Gemma2", "Gemma3")


@dataclass(frozen=True, eq=False)
class Variant:
    """One config of one family. `rope` is put beside the config's own theta."""

    name: str
    family: str
    rope: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def config(self) -> Any:
        values = {**SIZES, **self.options}
        if self.rope:
            values["rope_parameters"] = dict(self.rope)
        name = CONFIG_CLASSES.get(self.family, f"{self.family}Config")
        return getattr(transformers, name)(**values)


def _variant(name: str, rope: dict[str, Any] | None = None, **options: Any) -> Variant:
    return Variant(name, name.split("-", maxsplit=1)[0], rope or {}, options)


VARIANTS = (
    _variant("Llama-2", num_key_value_heads=4),
    _variant("Llama-3.2", {**LLAMA3_ROPE, "rope_theta": 5e5}, tie_word_embeddings=True),
    _variant("Llama-linear", {"rope_type": "linear", "factor": 4.0}),
    _variant("Llama-dynamic", {"rope_type": "dynamic", "factor": 4.0}),
    _variant(
        "Llama-dynamic-stretched",
        {"rope_type": "dynamic", "factor": 4.0},
        max_position_embeddings=16,
    ),
    _variant("Llama-yarn", YARN),
    _variant(
        "Llama-yarn-factors",
        {**YARN, "attention_factor": 1.5, "beta_fast": 8.0, "beta_slow": 2.0, "rope_theta": 1e5},
    ),
    _variant("Llama-biases", attention_bias=True, mlp_bias=True),
    _variant("Llama-head-dim", head_dim=32),
    _variant(
        "Llama-smollm2",
        hidden_size=72,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
    ),
    _variant("Mistral-full", sliding_window=None),
    _variant("Mistral-window", sliding_window=8),
    _variant("Mistral-head-dim", sliding_window=8, head_dim=32, num_key_value_heads=1),
    _variant(
        "Ministral-layer-types", head_dim=16, sliding_window=8, layer_types=[FULL, SLIDING, FULL]
    ),
    _variant("Ministral-all-full", head_dim=16, sliding_window=8, layer_types=[FULL] * 3),
    _variant("Qwen2-full", tie_word_embeddings=True),
    _variant("Qwen2-upper-layers", use_sliding_window=True, sliding_window=8, max_window_layers=1),
    _variant(
        "Qwen2-layer-types",
        use_sliding_window=True,
        sliding_window=8,
        layer_types=[SLIDING, FULL, SLIDING],
    ),
    _variant("Qwen2-all-full", use_sliding_window=True, sliding_window=8, layer_types=[FULL] * 3),
    _variant("Qwen2-window-off", use_sliding_window=False, sliding_window=8, max_window_layers=0),
    _variant("Qwen3-full", head_dim=32, tie_word_embeddings=True),
    _variant("Qwen3-biases", head_dim=16, attention_bias=True),
    _variant(
        "Qwen3-upper-layers",
        head_dim=32,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=2,
    ),
    _variant("SmolLM3-interval", no_rope_layer_interval=2),
    _variant("SmolLM3-list", no_rope_layers=[0, 1, 0], attention_bias=True, mlp_bias=True),
    _variant(
        "SmolLM3-window",
        no_rope_layers=[1, 0, 1],
        use_sliding_window=True,
        sliding_window=8,
        tie_word_embeddings=False,
    ),
)
GEMMA_VARIANTS = (
    _variant("Gemma3-pattern", sliding_window=8, sliding_window_pattern=2),
    _variant("Gemma3-layer-types", sliding_window=8, layer_types=[FULL, SLIDING, SLIDING]),
    _variant("Gemma3-all-full", sliding_window=8, layer_types=[FULL] * 3),
    _variant("Gemma3-all-local", sliding_window=8, layer_types=[SLIDING] * 3),
    _variant(
        "Gemma3-linear",
        {
            FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
            SLIDING: {"rope_type": "default", "rope_theta": 500.0},
        },
        sliding_window=8,
        sliding_window_pattern=3,
    ),
    _variant(
        "Gemma3-capped",
        sliding_window=8,
        sliding_window_pattern=2,
        query_pre_attn_scalar=24,
        final_logit_softcapping=3.0,
        attn_logit_softcapping=2.0,
        head_dim=32,
    ),
    _variant(
        "Gemma3-untied",
        sliding_window=8,
        sliding_window_pattern=2,
        tie_word_embeddings=False,
        attention_bias=True,
    ),
    _variant(
        "Gemma2-capped",
        sliding_window=8,
        query_pre_attn_scalar=24,
        final_logit_softcapping=4.0,
        attn_logit_softcapping=2.0,
    ),
    _variant(
        "Gemma2-uncapped",
        sliding_window=8,
        final_logit_softcapping=None,
        attn_logit_softcapping=None,
    ),
)


@functools.cache
def reference_model(variant: Variant) -> Any:
    """Return the transformers model, with the same random weights every time."""
    torch.manual_seed(sum(map(ord, variant.name)))
    model = getattr(transformers, f"{variant.family}ForCausalLM")(variant.config()).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                # wide enough that attention is sharp and a lost window or rotation shows
                weight.normal_(std=1.5 * weight.shape[1] ** -0.5)
            else:
                is_one = name.endswith("norm.weight") and variant.family not in NORMS_LESS_ONE
                weight.normal_(mean=float(is_one), std=0.3)
    return model


@torch.no_grad()
def reference_logits(variant: Variant, token_ids: list[int]) -> torch.Tensor:
    """Return transformers' logits [tokens, vocab] at every position of a prompt."""
    model = reference_model(variant)
    if variant.rope.get("rope_type") != "dynamic":
        return model(torch.tensor([token_ids])).logits[0]
    # Beyond the original length a dynamic table depends on how long the input is so far, so that
    # only a model that sees token after token has one answer for each position.
    cache, rows = transformers.DynamicCache(config=model.config), []
    for position, token_id in enumerate(token_ids):
        out = model(
            torch.tensor([[token_id]]),
            cache=cache,
            position_ids=torch.tensor([[position]]),
        )
        rows.append(out.logits[0, -1])
    return torch.stack(rows)


def save(variant: Variant, folder: Path) -> Path:
    """Save a variant as safetensors and config.json, as transformers writes them."""
    reference_model(variant).save_pretrained(folder)
    if variant.family == "Ministral":
        # published as Mistral with `layer_types`; transformers then runs it as Ministral
        path = folder / "config.json"
        names = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
        path.write_text(json.dumps(json.loads(path.read_text()) | names))
    return folder


def variant_named(name: str) -> Variant:
    """Return one of `VARIANTS` or `GEMMA_VARIANTS`."""
    return next(one for one in (*VARIANTS, *GEMMA_VARIANTS) if one.name == name)
