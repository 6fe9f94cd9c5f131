"""What GGUF files of Gemma 2 and 3 leave unsaid, or say in another way than other decoders' do.

Source: llama.cpp's `gemma2` and `gemma3` models, and its converter. Knows the keys of these, and
that their norms are stored with the one added that Hugging Face leaves out. Does not know how a
model computes.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from octavo.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.interfaces.weights import WeightBlocks
    from octavo_plugins.formats.gguf_header import GgufHeader

# The largest of a family is told by its layers: its scores are scaled by hidden_size / heads.
_LAYERS_OF_27B: Final[Mapping[str, int]] = MappingProxyType({"gemma2": 46, "gemma3": 62})
# Where the file says nothing: caps of scores and of logits.
_CAPS: Final[Mapping[str, tuple[float | None, float | None]]] = MappingProxyType(
    {"gemma2": (50.0, 30.0), "gemma3": (None, None)}
)
_LOCAL_THETA: Final = 10_000.0


def adapt_to_gemma(config: dict[str, Any], header: GgufHeader, name: str) -> None:
    """Say in the config of a decoder what Hugging Face says of a Gemma. `name` is GGUF's."""
    num_heads, head_dim = config["num_attention_heads"], config["head_dim"]
    is_largest = config["num_hidden_layers"] == _LAYERS_OF_27B[name]
    scores, logits = _CAPS[name]
    # windows are on unless all layers are named; the pattern of a family is in its name
    for key in ("max_window_layers", "use_sliding_window", "hidden_act"):
        config.pop(key, None)
    config |= {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": config["hidden_size"] // num_heads if is_largest else head_dim,
        "attn_logit_softcapping": header.number(f"{name}.attn_logit_softcapping", scores),
        "final_logit_softcapping": header.number(f"{name}.final_logit_softcapping", logits),
        "rope_local_base_freq": header.number(f"{name}.rope.freq_base_swa", _LOCAL_THETA),
        # the length that was trained for is the one that scaling gave
        "max_position_embeddings": header.integer(f"{name}.context_length", 0),
    }


def without_one(blocks: WeightBlocks) -> WeightBlocks:
    """Return a norm as Hugging Face stores it. Copies it.

    Raises ModelLoadError unless it is F32, as converters write all norms.
    """
    if blocks.block_type != "F32":
        raise ModelLoadError(
            f"tensor '{blocks.name}' is a norm of type {blocks.block_type}, which must be F32",
            f"GGUF file '{blocks.source}'",
        )
    values = np.frombuffer(blocks.data.tobytes(), dtype="<f4") - np.float32(1)
    return replace(blocks, data=values.view(np.uint8).reshape(blocks.data.shape))
