"""Writes a GGUF file's weights, decoded, as a folder that transformers and vLLM read.

Knows transformers' reader of GGUF. Does not know any engine.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch
import transformers

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def write_float_copy(model: Path, folder: Path) -> None:
    """Write `config.json` and float32 safetensors. A tokenizer is not needed: work is token ids.

    Raises:
        ConfigError: a package is missing that transformers reads GGUF with.
    """
    missing = [name for name in ("accelerate", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            "transformers cannot read a GGUF file here",
            f"not installed: {', '.join(missing)}",
            f"to install: pip install {' '.join(missing)}",
        )
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        model.parent, gguf_file=model.name, dtype=torch.float32
    )
    quantizer = getattr(loaded, "hf_quantizer", None)
    if quantizer is not None:
        # the weights are decoded, but it is still noted that they were not, and then not saved
        quantizer.remove_quantization_config(loaded)
    loaded.save_pretrained(folder)
