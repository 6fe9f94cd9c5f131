"""Names of tensors: GGUF's for the `llama` family of architectures, and Hugging Face's.

Also undoes the one change that converters make to weights: for some architectures the rows of
query and key projections are stored in the order of interleaved rotary pairs.

Knows names and row orders. Does not know files or configs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from octavo.interfaces.weights import WeightBlocks

_OUTSIDE_LAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "output": "lm_head",
    }
)

_INSIDE_LAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
)

# Gemma's layers norm what each half of them adds, too; the norm before the second half has
# another name than Llama's, whose name stands for the norm behind the first.
_OF_GEMMA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ffn_norm": "pre_feedforward_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }
)

_LAYER: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_INTERLEAVED: Final = re.compile(r"\.self_attn\.([qk])_proj\.(weight|bias)$")


def hugging_face_name(gguf_name: str, *, is_gemma: bool = False) -> str:
    """Return the Hugging Face name of a tensor; a name not known stays as it is."""
    match = _LAYER.fullmatch(gguf_name)
    inside = {**_INSIDE_LAYERS, **_OF_GEMMA} if is_gemma else _INSIDE_LAYERS
    if match is not None and match[2] in inside:
        return f"model.layers.{match[1]}.{inside[match[2]]}.{match[3]}"
    stem, _, ending = gguf_name.rpartition(".")
    if stem in _OUTSIDE_LAYERS and ending in {"weight", "bias"}:
        return f"{_OUTSIDE_LAYERS[stem]}.{ending}"
    return gguf_name


def interleaved_heads(name: str, num_heads: int, num_kv_heads: int) -> int | None:
    """Return how many heads a tensor has whose rows converters interleave, or None."""
    match = _INTERLEAVED.search(name)
    if match is None:
        return None
    return num_heads if match[1] == "q" else num_kv_heads


def half_split_order(num_rows: int, num_heads: int) -> NDArray[np.intp]:
    """Return for each row in Hugging Face's order where the file has it.

    Hugging Face rotates row p of a head with row p + d/2; the file has such pairs side by side,
    as rows 2p and 2p + 1.
    """
    return (
        np.arange(num_rows, dtype=np.intp)
        .reshape(num_heads, num_rows // num_heads // 2, 2)
        .swapaxes(1, 2)
        .reshape(-1)
    )


def undo_interleaving(blocks: WeightBlocks, num_heads: int) -> WeightBlocks:
    """Return a projection, or its bias, with rows in Hugging Face's order. Copies the bytes."""
    if len(blocks.shape) > 1:
        return blocks.permute_rows(half_split_order(blocks.num_rows, num_heads))
    order = half_split_order(blocks.columns, num_heads)
    elements = blocks.data.reshape(blocks.columns, -1)
    return replace(blocks, data=np.ascontiguousarray(elements[order]).reshape(1, -1))
