"""Writes tiny checkpoints for tests: GGUF files byte by byte, and safetensors folders.

An own writer of GGUF, so that a test can also write what a correct writer never would.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from safetensors.torch import save_file

from octavo_plugins.tokenizers.token_bytes import byte_characters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_TYPE_NUMBERS: Final = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "BF16": 30,
}


@dataclass(frozen=True)
class Typed:
    """A metadata value whose type in the file is not the one its Python type would get."""

    kind: str
    value: Any


@dataclass(frozen=True)
class GgufTensor:
    """A tensor to write: its logical shape, its type, and its bytes [rows, bytes per row]."""

    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    type_name: str = "F32"
    type_number: int | None = None
    offset: int | None = None


@dataclass
class GgufFile:
    """All that a GGUF file holds. Fields that a correct writer computes can be set to lies."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, GgufTensor] = field(default_factory=dict)
    magic: bytes = b"GGUF"
    version: int = 3
    num_tensors: int | None = None
    num_values: int | None = None

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        path.write_bytes(self.to_bytes())
        return path

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_values = len(self.metadata) if self.num_values is None else self.num_values
        header = self.magic + struct.pack("<IQQ", self.version, num_tensors, num_values)
        for key, value in self.metadata.items():
            header += _string(key) + _value(value)
        alignment = self.metadata.get("general.alignment", 32)
        alignment = alignment if isinstance(alignment, int) and alignment > 0 else 32
        body = b""
        for name, tensor in self.tensors.items():
            body += b"\0" * (-len(body) % alignment)
            offset = len(body) if tensor.offset is None else tensor.offset
            number = tensor.type_number
            number = _TYPE_NUMBERS[tensor.type_name] if number is None else number
            dimensions = tensor.shape[::-1]
            header += _string(name) + struct.pack("<I", len(dimensions))
            header += struct.pack(f"<{len(dimensions)}QIQ", *dimensions, number, offset)
            body += tensor.data.tobytes()
        return header + b"\0" * (-len(header) % alignment) + body


def f32(array: NDArray[Any]) -> GgufTensor:
    """Return a float32 tensor for a GGUF file."""
    array = np.ascontiguousarray(array, dtype=np.float32)
    return GgufTensor(array.shape, array.view(np.uint8).reshape(-1, 4 * array.shape[-1]))


def _string(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


_SCALAR_FORMATS: Final = {
    "uint8": (0, "B"),
    "int8": (1, "b"),
    "uint16": (2, "H"),
    "int16": (3, "h"),
    "uint32": (4, "I"),
    "int32": (5, "i"),
    "float32": (6, "f"),
    "bool": (7, "?"),
    "uint64": (10, "Q"),
    "int64": (11, "q"),
    "float64": (12, "d"),
}


def _value(value: Any) -> bytes:
    """Encode a value with its type; plain ints become uint32 and floats float32."""
    if isinstance(value, Typed):
        number, code = _SCALAR_FORMATS[value.kind]
        return struct.pack(f"<I{code}", number, value.value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, (str, bytes)):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, (list, tuple)):
        return struct.pack("<I", 9) + _array(value)
    raise TypeError(f"no way to write {value!r}")


def _array(values: Sequence[Any]) -> bytes:
    if values and isinstance(values[0], (str, bytes)):
        return struct.pack("<IQ", 8, len(values)) + b"".join(_string(value) for value in values)
    if values and isinstance(values[0], bool):
        return struct.pack(f"<IQ{len(values)}?", 7, len(values), *values)
    if values and isinstance(values[0], float):
        return struct.pack(f"<IQ{len(values)}f", 6, len(values), *values)
    return struct.pack(f"<IQ{len(values)}i", 5, len(values), *values)


def write_safetensors(
    folder: Path,
    config: Mapping[str, Any],
    shards: Sequence[Mapping[str, torch.Tensor]],
    *,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write a folder as Hugging Face does: one file, or shards with an index. Return it.

    `extra` maps names of further JSON files to their contents.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in (extra or {}).items():
        (folder / name).write_text(json.dumps(content))
    if len(shards) == 1:
        save_file(dict(shards[0]), folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    total_bytes = 0
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(dict(shard), folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))
        total_bytes += sum(tensor.nbytes for tensor in shard.values())
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def random_tensor(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor of normal noise that a seed determines."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def llama_gguf(
    architecture: str = "llama", *, hidden_size: int = 32, head_dim: int = 8, num_layers: int = 2
) -> GgufFile:
    """Return a tiny model of the llama family, weights of noise: 4 heads, 2 of keys."""
    rng = np.random.default_rng(11)
    inner_size = 64 if hidden_size < 64 else 256

    def noise(*shape: int) -> GgufTensor:
        return f32(rng.normal(0, 0.1, shape))

    tensors = {"token_embd.weight": noise(48, hidden_size)}
    for layer in range(num_layers):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": noise(hidden_size),
            f"blk.{layer}.attn_q.weight": noise(4 * head_dim, hidden_size),
            f"blk.{layer}.attn_k.weight": noise(2 * head_dim, hidden_size),
            f"blk.{layer}.attn_v.weight": noise(2 * head_dim, hidden_size),
            f"blk.{layer}.attn_output.weight": noise(hidden_size, 4 * head_dim),
            f"blk.{layer}.ffn_norm.weight": noise(hidden_size),
            f"blk.{layer}.ffn_gate.weight": noise(inner_size, hidden_size),
            f"blk.{layer}.ffn_up.weight": noise(inner_size, hidden_size),
            f"blk.{layer}.ffn_down.weight": noise(hidden_size, inner_size),
        }
    tensors["output_norm.weight"] = noise(hidden_size)
    metadata: dict[str, Any] = {
        "general.architecture": architecture,
        f"{architecture}.block_count": num_layers,
        f"{architecture}.context_length": 64,
        f"{architecture}.embedding_length": hidden_size,
        f"{architecture}.feed_forward_length": inner_size,
        f"{architecture}.attention.head_count": 4,
        f"{architecture}.attention.head_count_kv": 2,
        f"{architecture}.attention.key_length": head_dim,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.dimension_count": head_dim,
    }
    return GgufFile(metadata, tensors)


def byte_vocabulary(*markers: str, merges: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return the metadata of a byte-level vocabulary: 256 bytes, merges, then control tokens."""
    merges = merges or [("a", "b")]
    tokens = [*byte_characters().values(), *("".join(merge) for merge in merges), *markers]
    kinds = [1] * (len(tokens) - len(markers)) + [3] * len(markers)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
    }
