"""Writes a Llama of random weights as GGUF, as large as real ones: speed does not read weights.

Knows GGUF's names and the `gguf` package. Does not know any engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import gguf
import numpy as np

from octavo.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_TOKENIZER: Final = "tokenizer."
_MATRIX_TYPES: Final = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16")
#: of the embedding, which is the output matrix as well: llama.cpp keeps it finer than the rest
_EMBEDDING_TYPE: Final = gguf.GGMLQuantizationType.Q8_0
#: the standard deviation of weights that Llamas start their training from
_DEVIATION: Final = 0.02
_EPSILON: Final = 1e-5


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama; its vocabulary is the tokenizer's."""

    num_layers: int
    width: int
    feed_forward: int
    num_heads: int
    num_kv_heads: int
    context_tokens: int = 8192
    rope_base: float = 500_000.0

    @property
    def head_dim(self) -> int:
        """Return the width of a head."""
        return self.width // self.num_heads

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Return (rows, columns) of a layer's matrices by name."""
        kv_width = self.num_kv_heads * self.head_dim
        return {
            "attn_q": (self.width, self.width),
            "attn_k": (kv_width, self.width),
            "attn_v": (kv_width, self.width),
            "attn_output": (self.width, self.width),
            "ffn_gate": (self.feed_forward, self.width),
            "ffn_up": (self.feed_forward, self.width),
            "ffn_down": (self.width, self.feed_forward),
        }


#: Llama 3.2 1B, TinyLlama 1.1B, and one for tests
SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "llama-1b": Shape(16, 2048, 8192, 32, 8),
        "tinyllama-1b": Shape(22, 2048, 5632, 32, 4, rope_base=10_000.0),
        "tiny": Shape(2, 128, 256, 4, 2, context_tokens=512),
    }
)


def write_random_gguf(path: Path, shape_name: str, type_name: str, tokenizer: Path) -> None:
    """Write a model; the same for the same arguments. `tokenizer`: a GGUF file that has one.

    Raises ConfigError for a shape or type that is not there, or a file without a tokenizer.
    """
    _require("shape", shape_name, list(SHAPES))
    _require("type", type_name, list(_MATRIX_TYPES))
    shape, kind = SHAPES[shape_name], gguf.GGMLQuantizationType[type_name]
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    vocab_size = _copy_tokenizer(writer, tokenizer)
    writer.add_name(f"random {shape_name}")
    writer.add_file_type(getattr(gguf.LlamaFileType, f"MOSTLY_{type_name}"))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _write_sizes(writer, shape, vocab_size)
    for name, array, tensor_kind in _tensors(shape, vocab_size, kind):
        if tensor_kind in {gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16}:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, array, raw_dtype=tensor_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _require(what: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise ConfigError(
            f"unknown {what} {name!r} (--{what})",
            did_you_mean(name, known),
            f"{what}s: {', '.join(known)}",
        )


def _copy_tokenizer(writer: gguf.GGUFWriter, path: Path) -> int:
    """Copy all that belongs to the tokenizer; return the size of its vocabulary."""
    fields = gguf.GGUFReader(path).fields
    if "tokenizer.ggml.tokens" not in fields:
        raise ConfigError(f"{path} has no tokenizer (--tokenizer)")
    for name, field in fields.items():
        if name.startswith(_TOKENIZER):
            sub_type = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    return len(fields["tokenizer.ggml.tokens"].data)


def _write_sizes(writer: gguf.GGUFWriter, shape: Shape, vocab_size: int) -> None:
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(shape.context_tokens)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_layer_norm_rms_eps(_EPSILON)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_vocab_size(vocab_size)


def _tensors(
    shape: Shape, vocab_size: int, kind: gguf.GGMLQuantizationType
) -> Iterator[tuple[str, Any, gguf.GGMLQuantizationType]]:
    """Yield name, data as stored, and type of each tensor: matrices random, norms 1."""
    source = np.random.default_rng(0)
    ones = np.ones(shape.width, np.float32)
    plain = gguf.GGMLQuantizationType.F32

    def matrix(size: tuple[int, int], stored: gguf.GGMLQuantizationType) -> Any:
        values = source.standard_normal(size, dtype=np.float32) * np.float32(_DEVIATION)
        return gguf.quantize(values, stored)

    size = (vocab_size, shape.width)
    yield "token_embd.weight", matrix(size, _EMBEDDING_TYPE), _EMBEDDING_TYPE
    yield "output_norm.weight", ones, plain
    for layer in range(shape.num_layers):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", ones, plain
        for name, size in shape.matrices().items():
            yield f"blk.{layer}.{name}.weight", matrix(size, kind), kind
