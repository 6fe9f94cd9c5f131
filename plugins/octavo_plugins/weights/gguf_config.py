"""Translates a GGUF file's metadata into a Hugging Face config.

Knows the architectures whose tensors `gguf_names` can name. Does not know tokenizers, or how a
model computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from octavo.errors import ModelLoadError, did_you_mean
from octavo_plugins.formats.gguf_vocabulary import read_named_ids
from octavo_plugins.weights.gguf_gemma import adapt_to_gemma
from octavo_plugins.weights.gguf_rope import explain_factors, max_positions_with, rope_scaling
from octavo_plugins.weights.rope_keys import with_both_spellings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from octavo_plugins.formats.gguf_header import GgufHeader, TensorInfo

ROPE_FACTORS: Final = "rope_freqs.weight"
_DEFAULT_THETA: Final = 10000.0
# in SmolLM3 each fourth layer has no rotary embedding
_NO_ROPE_INTERVAL: Final = 4


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """An architecture as GGUF names it, and what Hugging Face calls it.

    `is_interleaved`: converters stored query and key rows in interleaved rotary order.
    `is_gemma`: layers have norms behind their halves too, and all norms have one added.
    """

    hugging_face: str
    model_type: str
    is_interleaved: bool
    is_gemma: bool = False


ARCHITECTURES: Final[Mapping[str, GgufArchitecture]] = MappingProxyType(
    {
        "llama": GgufArchitecture("LlamaForCausalLM", "llama", is_interleaved=True),
        "qwen2": GgufArchitecture("Qwen2ForCausalLM", "qwen2", is_interleaved=False),
        "qwen3": GgufArchitecture("Qwen3ForCausalLM", "qwen3", is_interleaved=False),
        "gemma2": GgufArchitecture(
            "Gemma2ForCausalLM", "gemma2", is_interleaved=False, is_gemma=True
        ),
        "gemma3": GgufArchitecture(
            "Gemma3ForCausalLM", "gemma3_text", is_interleaved=False, is_gemma=True
        ),
        "smollm3": GgufArchitecture("SmolLM3ForCausalLM", "smollm3", is_interleaved=True),
    }
)


def architecture_of(header: GgufHeader) -> str:
    """Return the architecture's name in GGUF. One that is not known is an error."""
    name = header.text("general.architecture", None)
    if name is None:
        raise ModelLoadError(
            f"GGUF file '{header.path}' has no 'general.architecture'",
            "it holds no language model, or is not the first file of a split one",
        )
    if name not in ARCHITECTURES:
        raise ModelLoadError(
            f"unknown architecture '{name}' (GGUF file '{header.path}', 'general.architecture')",
            did_you_mean(name, ARCHITECTURES),
            f"known are {', '.join(ARCHITECTURES)}",
            "a folder with safetensors may work where its GGUF does not",
        )
    return name


def translate_config(header: GgufHeader, tensors: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """Return the config. `tensors` are those of all files of the model, by GGUF names.

    Raises ModelLoadError naming the key that is missing, or says what cannot be done.
    """
    name = architecture_of(header)
    keys = _Keys(header, name)
    if keys.optional("expert_count", 0):
        keys.refuse("expert_count", "mixtures of experts are not supported in this architecture")
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelLoadError(f"GGUF model '{header.path}' has no tensor 'token_embd.weight'")
    num_heads = keys.required("attention.head_count")
    hidden_size = keys.required("embedding_length")
    head_dim = keys.optional("attention.key_length", hidden_size // num_heads)
    if keys.optional("attention.value_length", head_dim) != head_dim:
        keys.refuse("attention.value_length", f"keys are {head_dim} wide, values must be too")
    architecture = ARCHITECTURES[name]
    config: dict[str, Any] = {
        "architectures": [architecture.hugging_face],
        "model_type": architecture.model_type,
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden_size,
        "intermediate_size": keys.required("feed_forward_length"),
        "num_hidden_layers": keys.required("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": keys.optional("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": keys.decimal("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
    }
    config |= _rope(keys, tensors, head_dim) | _windows(keys) | _special_ids(header)
    _adapt(config, name)
    if architecture.is_gemma:
        adapt_to_gemma(config, header, name)
    return with_both_spellings(config)


def _adapt(config: dict[str, Any], name: str) -> None:
    """Say what Hugging Face says in the config, and GGUF in the architecture's name alone."""
    if name == "llama" and "sliding_window" in config:
        # Mistral's GGUF files say "llama"; to Hugging Face that is the one without windows
        config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    if name == "smollm3":
        config["no_rope_layer_interval"] = _NO_ROPE_INTERVAL
        config["no_rope_layers"] = [
            int((layer + 1) % _NO_ROPE_INTERVAL != 0)
            for layer in range(config["num_hidden_layers"])
        ]


def translate_generation_config(header: GgufHeader) -> dict[str, Any]:
    """Return sampling defaults and special ids. The tokenizer knows further end tokens."""
    result = _special_ids(header)
    for key, name in (("temp", "temperature"), ("top_p", "top_p"), ("min_p", "min_p")):
        value = header.number(f"general.sampling.{key}", None)
        if value is not None:
            result[name] = float(str(np.float32(value)))
    top_k = header.integer("general.sampling.top_k", None)
    if top_k is not None:
        result["top_k"] = top_k
    return result


class _Keys:
    """Reads the keys of one architecture, with errors that name them."""

    def __init__(self, header: GgufHeader, architecture: str) -> None:
        self.header = header
        self.architecture = architecture

    def refuse(self, key: str, why: str) -> NoReturn:
        full = f"{self.architecture}.{key}"
        raise ModelLoadError(
            f"GGUF file '{self.header.path}': '{full}' is {self.header.metadata.get(full)}", why
        )

    def required(self, key: str) -> int:
        value = self.header.integer(f"{self.architecture}.{key}", None)
        if value is None or value <= 0:
            self.refuse(key, "it must be a number above 0")
        return value

    def optional(self, key: str, default: int) -> int:
        value = self.header.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray) and len(value) and (value == value[0]).all():
            return int(value[0])  # one number for each layer, all the same
        return self.header.integer(f"{self.architecture}.{key}", default)

    def decimal(self, key: str, default: float | None = None) -> float:
        value = self.header.number(f"{self.architecture}.{key}", default)
        if value is None or value <= 0:
            self.refuse(key, "it must be a number above 0")
        return float(str(np.float32(value)))


def _rope(keys: _Keys, tensors: Mapping[str, TensorInfo], head_dim: int) -> dict[str, Any]:
    header = keys.header
    trained = keys.required("context_length")
    theta = keys.decimal("rope.freq_base", _DEFAULT_THETA)
    rotary_dim = keys.optional("rope.dimension_count", head_dim)
    scaling = rope_scaling(header, keys.architecture, trained)
    result: dict[str, Any] = {"max_position_embeddings": max_positions_with(scaling, trained)}
    if ROPE_FACTORS in tensors:
        info = tensors[ROPE_FACTORS]
        if info.type_name != "F32" or info.shape != (rotary_dim // 2,):
            raise ModelLoadError(
                f"GGUF file '{header.path}': tensor '{ROPE_FACTORS}' must be F32 "
                f"[{rotary_dim // 2}]",
                f"it is {info.type_name} {list(info.shape)}",
            )
        factors = header.rows(info).view(np.float32)[0]
        explained = explain_factors(factors, theta, rotary_dim) if not scaling else None
        if explained is not None:
            scaling = explained
        elif not np.allclose(factors, 1.0):
            result["rope_frequency_factors"] = factors.tolist()
    result["rope_theta"] = theta
    result["rope_scaling"] = scaling or None
    if rotary_dim != head_dim:
        result["partial_rotary_factor"] = rotary_dim / head_dim
    return result


def _windows(keys: _Keys) -> dict[str, Any]:
    """Return sliding windows: `layer_types` says which layers have one, if not all do."""
    window = keys.optional("attention.sliding_window", 0)
    if not window:
        return {}
    result: dict[str, Any] = {"sliding_window": window, "use_sliding_window": True}
    num_layers = keys.required("block_count")
    pattern = keys.header.metadata.get(f"{keys.architecture}.attention.sliding_window_pattern")
    if pattern is None:
        return {**result, "max_window_layers": 0}
    if isinstance(pattern, int) and not isinstance(pattern, bool):
        # every so-manieth layer sees all; 0: none does
        pattern = np.array([pattern == 0 or (i + 1) % pattern != 0 for i in range(num_layers)])
    if not isinstance(pattern, np.ndarray) or len(pattern) != num_layers:
        keys.refuse("attention.sliding_window_pattern", "it must be a bool for each layer")
    result["layer_types"] = [
        "sliding_attention" if is_sliding else "full_attention" for is_sliding in pattern
    ]
    return result


def _special_ids(header: GgufHeader) -> dict[str, Any]:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if tokens is None:
        return {}
    ids = read_named_ids(header, len(tokens))
    return {f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad") if name in ids}
