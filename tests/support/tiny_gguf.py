"""Writes a tiny model as GGUF with the `gguf` library, the way llama.cpp's converter does.

Queries and keys of the llama architectures are permuted (llama.cpp rotates neighbouring pairs),
llama3 scaling becomes the tensor `rope_freqs.weight`, other scaling becomes metadata.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
ARCHITECTURES["smollm3"] = "smollm3"
ARCHITECTURES |= {"gemma2": "gemma2", "gemma3_text": "gemma3"}
GEMMA = ("gemma2", "gemma3")
PERMUTED = ("llama", "smollm3")
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_NAMES = {
    "pre_feedforward_layernorm": "ffn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def write_gguf(model: Any, path: Path, block_type: str = "F32") -> Path:
    """Write a transformers model; matrices other than the embedding in the given block type.

    The model's own matrices become what the file's blocks decode to, so that its logits are the
    ones to expect from the file.
    """
    config = model.config
    architecture = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, architecture)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    _write_sizes(writer, config, head_dim)
    if architecture in GEMMA:
        _write_gemma(writer, config, architecture)
    _write_rope(writer, config, head_dim)
    _write_tokens(writer, config.vocab_size)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.numpy()
        if architecture in GEMMA and name.endswith("norm.weight"):
            array = array + 1
        if architecture in PERMUTED and ".q_proj" in name:
            array = permute(array, config.num_attention_heads)
        if architecture in PERMUTED and ".k_proj" in name:
            array = permute(array, config.num_key_value_heads)
        if tensor.dim() == 2 and "proj" in name and block_type != "F32":
            kind = gguf.GGMLQuantizationType[block_type]
            data = gguf.quantize(np.ascontiguousarray(array), kind)
            _set_weight(tensor, name, gguf.dequantize(data, kind), architecture, config)
            writer.add_tensor(gguf_name(name, architecture), data, raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name, architecture), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def permute(array: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Interleave the halves of each head: rows 0, d/2, 1, d/2 + 1, ..."""
    halves = array.reshape(num_heads, 2, -1, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def unpermute(array: NDArray[Any], num_heads: int) -> NDArray[Any]:
    """Undo `permute`."""
    pairs = array.reshape(num_heads, -1, 2, *array.shape[1:])
    return pairs.swapaxes(1, 2).reshape(array.shape)


def gguf_name(name: str, architecture: str = "llama") -> str:
    """Return llama.cpp's name of a tensor."""
    names = NAMES | GEMMA_NAMES if architecture in GEMMA else NAMES
    module, kind = name.rsplit(".", 1)
    if not module.startswith("model.layers."):
        return f"{names[module]}.{kind}"
    _, _, layer, module = module.split(".", 3)
    return f"blk.{layer}.{names[module]}.{kind}"


def llama3_factors(rope: dict[str, Any], head_dim: int) -> NDArray[np.float32]:
    """Return what llama.cpp's converter stores of llama3 scaling: divisors of the frequencies."""
    factors = []
    for i in range(0, head_dim, 2):
        turns = rope["original_max_position_embeddings"] / (
            2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        )
        low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
        smooth = (turns - low) / (high - low)
        factors.append(1 / (smooth + (1 - smooth) / factor) if 0 < smooth < 1 else 1.0)
        if smooth <= 0:
            factors[-1] = factor
    return np.array(factors, dtype=np.float32)


def _set_weight(
    tensor: Any, name: str, array: NDArray[Any], architecture: str, config: Any
) -> None:
    if architecture in PERMUTED and ".q_proj" in name:
        array = unpermute(array, config.num_attention_heads)
    if architecture in PERMUTED and ".k_proj" in name:
        array = unpermute(array, config.num_key_value_heads)
    tensor.copy_(tensor.new_tensor(array))


def _write_sizes(writer: Any, config: Any, head_dim: int) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _write_gemma(writer: Any, config: Any, architecture: str) -> None:
    writer.add_sliding_window(config.sliding_window)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key) is not None:
            writer.add_float32(f"{architecture}.{key}", getattr(config, key))
    if "sliding_attention" in config.rope_parameters:
        theta = config.rope_parameters["sliding_attention"]["rope_theta"]
        writer.add_float32(f"{architecture}.rope.freq_base_swa", theta)


def _write_rope(writer: Any, config: Any, head_dim: int) -> None:
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(rope, head_dim))
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _write_tokens(writer: Any, vocab_size: int) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"<{i}>" for i in range(vocab_size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * vocab_size)
    writer.add_token_merges([])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
