"""Reads `config.json` and `generation_config.json` of a Hugging Face model folder.

Knows which keys Octavo relies on. Does not know weights or tokenizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelLoadError
from octavo.interfaces.weights import ModelDescription
from octavo_plugins.formats.json_file import read_json_object, read_optional_json
from octavo_plugins.weights.bare_models import as_whole
from octavo_plugins.weights.pooling import folder_pooling
from octavo_plugins.weights.rope_keys import with_both_spellings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG: Final = "config.json"
_QUANTIZATION_KEYS: Final = ("quantization_config", "compression_config")
# "yarn" and "linear" stretch positions beyond `max_position_embeddings` as written
_STRETCHING: Final = ("yarn", "linear")


def describe_folder(folder: Path) -> ModelDescription:
    """Return what the JSON files say. Raises as `read_config` does."""
    config, can_generate = as_whole(read_config(folder))
    return ModelDescription(
        path=folder,
        config=config,
        generation_config=read_generation_config(folder),
        tokenizer_path=folder,
        pooling=folder_pooling(folder),
        can_generate=can_generate,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config, with both spellings of rotary scaling.

    Raises ModelLoadError if it is missing or says nothing of the architecture, or if the weights
    are quantised in a way that plain safetensors cannot tell.
    """
    path = folder / CONFIG
    config = read_json_object(path)
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise ModelLoadError(
            f"'{path}' names no architecture",
            'it must have a list like "architectures": ["LlamaForCausalLM"]',
        )
    method = quantization_method(config)
    if method is not None:
        raise ModelLoadError(
            f"the weights in '{folder}' are quantised with {method}, which is not supported",
            f"'{path}' has a '{_quantization_key(config)}'",
            "use the model's unquantised folder, or a GGUF file of it",
        )
    config = with_both_spellings(config)
    _stretch_positions(config)
    return config


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Return the generation config; where there is none, the special ids of the config."""
    path = folder / "generation_config.json"
    if path.exists():
        return read_json_object(path)
    config = read_optional_json(folder / CONFIG)
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    return {name: config[name] for name in names if config.get(name) is not None}


def quantization_method(config: Mapping[str, Any]) -> str | None:
    """Return how the weights are quantised, or None when they are not."""
    key = _quantization_key(config)
    if key is None:
        return None
    method = config[key].get("quant_method") if isinstance(config[key], dict) else None
    return str(method or "an unnamed method")


def _quantization_key(config: Mapping[str, Any]) -> str | None:
    return next((key for key in _QUANTIZATION_KEYS if config.get(key)), None)


def _stretch_positions(config: dict[str, Any]) -> None:
    """Raise `max_position_embeddings` to what rotary scaling reaches, where it is written lower."""
    scaling = config.get("rope_scaling")
    positions = config.get("max_position_embeddings")
    if not isinstance(scaling, dict) or not isinstance(positions, int):
        return
    factor = scaling.get("factor")
    if scaling.get("rope_type") not in _STRETCHING or not isinstance(factor, (int, float)):
        return
    original = scaling.get("original_max_position_embeddings", positions)
    config["max_position_embeddings"] = max(positions, round(original * factor))
