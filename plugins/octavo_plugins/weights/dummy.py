"""The `dummy` weights format: random weights of the shapes that a config asks for.

For timing and for tests of everything but the text. Knows the tensors of the stock families
by name and shape. Does not read weights.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from octavo.errors import ModelLoadError, did_you_mean
from octavo.interfaces.weights import Checkpoint, ModelDescription, WeightBlocks, WeightsFormat
from octavo_plugins.formats.gguf_header import is_gguf
from octavo_plugins.weights.gguf_format import GgufFormat
from octavo_plugins.weights.hf_config import CONFIG, describe_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SPREAD: Final = 0.02
_SIZES: Final = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
# families whose query, key and value projections have biases without saying so
_ALWAYS_BIASED: Final = ("Qwen2ForCausalLM",)
_WITH_HEAD_NORMS: Final = ("Qwen3ForCausalLM", "Gemma3ForCausalLM")
# families with norms after each half of a layer too, all of them stored less one
_WITH_OUTER_NORMS: Final = ("Gemma2ForCausalLM", "Gemma3ForCausalLM")
_HYBRID: Final = "OctavoLinearHybridForCausalLM"
_FAMILIES: Final = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "SmolLM3ForCausalLM",
    *_ALWAYS_BIASED,
    *dict.fromkeys((*_WITH_HEAD_NORMS, *_WITH_OUTER_NORMS)),
    _HYBRID,
)


class DummyFormat(WeightsFormat):
    """Makes up weights for a folder with a `config.json`, or for the metadata of a GGUF file."""

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def why_not(self, path: Path) -> list[str]:
        """Return why not: always something, because nobody gets made-up weights unasked."""
        reasons = ["it makes up weights, so that it must be asked for by name"]
        if not is_gguf(path) and not (path / CONFIG).exists():
            reasons.append(f"'{path}' is neither a GGUF file nor a folder with a {CONFIG}")
        return reasons

    def open(self, path: Path) -> DummyCheckpoint:
        """Make up a checkpoint."""
        return DummyCheckpoint(self.open_config(path))

    def open_config(self, path: Path) -> ModelDescription:
        """Read the description."""
        if is_gguf(path):
            return GgufFormat().open_config(path)
        return describe_folder(path)


class DummyCheckpoint(Checkpoint):
    """A model whose weights are noise. The same name and shape always give the same noise."""

    def __init__(self, description: ModelDescription) -> None:
        super().__init__(description)
        self._shapes = tensor_shapes(description.config, str(description.path))

    def names(self) -> list[str]:
        """Return the names of all tensors."""
        return list(self._shapes)

    def blocks(self, name: str) -> WeightBlocks:
        """Make up one tensor: norms that change nothing, else small noise that its name seeds."""
        shape = self._shapes.get(name)
        if shape is None:
            raise ModelLoadError(
                f"there is no tensor '{name}' in the made-up weights for '{self.path}'",
                did_you_mean(name, self._shapes),
            )
        if "norm" in name:
            is_less_one = self.config["architectures"][0] in _WITH_OUTER_NORMS
            values = np.full(shape, 0.0 if is_less_one else 1.0, np.float32)
        else:
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
            rng = np.random.Generator(np.random.SFC64(seed))
            values = rng.standard_normal(shape, np.float32) * np.float32(_SPREAD)
        rows = math.prod(shape[:-1])
        return WeightBlocks(name, "F32", shape, values.view(np.uint8).reshape(rows, -1), "dummy")

    def close(self) -> None:
        """Do nothing: no file was opened."""


def tensor_shapes(config: Mapping[str, Any], where: str) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor of a llama-like model, as Hugging Face stores them."""
    family = config["architectures"][0]
    if family not in _FAMILIES:
        raise ModelLoadError(
            f"no weights can be made up for '{family}' ('{where}')",
            f"known are {', '.join(_FAMILIES)}",
        )
    absent = [key for key in _SIZES if not isinstance(config.get(key), int)]
    if family == _HYBRID and len(config.get("layer_types") or ()) != config.get(
        "num_hidden_layers"
    ):
        absent.append("layer_types")
    if absent:
        raise ModelLoadError(f"the config of '{where}' lacks {', '.join(absent)}")
    vocab, hidden = config["vocab_size"], config["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    layer = _layer_shapes(config, family)
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
        if family == _HYBRID and config["layer_types"][index] == "linear_attention":
            shapes[f"model.layers.{index}.self_attn.norm.weight"] = (_head_dim(config),)
    shapes["model.norm.weight"] = (hidden,)
    if not config.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def _layer_shapes(config: Mapping[str, Any], family: str) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, head_dim = config["num_attention_heads"], _head_dim(config)
    queries = heads * head_dim
    keys = (config.get("num_key_value_heads") or heads) * head_dim
    projections = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (hidden,)}
    for name, shape in projections.items():
        shapes[f"{name}.weight"] = shape
        if _has_bias(config, family, name):
            shapes[f"{name}.bias"] = shape[:1]
    if family in _WITH_HEAD_NORMS:
        shapes["self_attn.q_norm.weight"] = shapes["self_attn.k_norm.weight"] = (head_dim,)
    shapes["post_attention_layernorm.weight"] = (hidden,)
    if family in _WITH_OUTER_NORMS:
        shapes["pre_feedforward_layernorm.weight"] = (hidden,)
        shapes["post_feedforward_layernorm.weight"] = (hidden,)
    return shapes


def _head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _has_bias(config: Mapping[str, Any], family: str, name: str) -> bool:
    if name.startswith("mlp."):
        return bool(config.get("mlp_bias", False))
    if family in _ALWAYS_BIASED:
        return name != "self_attn.o_proj"
    return bool(config.get("attention_bias", False))
