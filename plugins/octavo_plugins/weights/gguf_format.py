"""The `gguf` weights format: one file, or several that belong together.

Knows where blocks lie, and hands them out as they are. Does not know how they are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import ModelLoadError, did_you_mean
from octavo.interfaces.weights import (
    BLOCK_TYPES,
    Checkpoint,
    ModelDescription,
    WeightBlocks,
    WeightsFormat,
)
from octavo_plugins.formats.gguf_header import reasons_no_gguf
from octavo_plugins.formats.gguf_splits import read_splits
from octavo_plugins.weights.gguf_config import (
    ARCHITECTURES,
    ROPE_FACTORS,
    architecture_of,
    translate_config,
    translate_generation_config,
)
from octavo_plugins.weights.gguf_gemma import without_one
from octavo_plugins.weights.gguf_names import (
    hugging_face_name,
    interleaved_heads,
    undo_interleaving,
)
from octavo_plugins.weights.pooling import gguf_pooling

if TYPE_CHECKING:
    from pathlib import Path

    from octavo_plugins.formats.gguf_header import GgufHeader, TensorInfo


class GgufFormat(WeightsFormat):
    """Opens GGUF files."""

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def why_not(self, path: Path) -> list[str]:
        """Return why `path` is no GGUF file."""
        return reasons_no_gguf(path)

    def open(self, path: Path) -> GgufCheckpoint:
        """Open a model; `path` may be any one of its files."""
        return GgufCheckpoint(path)

    def open_config(self, path: Path) -> ModelDescription:
        """Read the description. Weights are mapped, and never touched."""
        checkpoint = GgufCheckpoint(path)
        checkpoint.close()
        return checkpoint.description


class GgufCheckpoint(Checkpoint):
    """An opened GGUF model. Blocks are views of the mapped files, except where these differ."""

    def __init__(self, path: Path) -> None:
        self._headers: list[GgufHeader] = read_splits(path)
        first = self._headers[0]
        tensors = {name: info for part in self._headers for name, info in part.tensors.items()}
        super().__init__(
            ModelDescription(
                path=first.path,
                config=translate_config(first, tensors),
                generation_config=translate_generation_config(first),
                tokenizer_path=first.path,
                pooling=gguf_pooling(first, architecture_of(first)),
            )
        )
        self._architecture = ARCHITECTURES[architecture_of(first)]
        self._places: dict[str, tuple[GgufHeader, TensorInfo]] = {}
        for header in self._headers:
            for name, info in header.tensors.items():
                if name != ROPE_FACTORS:  # part of the config
                    is_gemma = self._architecture.is_gemma
                    place = (header, info)
                    self._places[hugging_face_name(name, is_gemma=is_gemma)] = place

    def names(self) -> list[str]:
        """Return the Hugging Face names of all tensors."""
        return list(self._places)

    def blocks(self, name: str) -> WeightBlocks:
        """Return one tensor's blocks."""
        if not self._headers:
            raise ModelLoadError(f"cannot read '{name}': '{self.path}' was closed")
        place = self._places.get(name)
        if place is None:
            raise ModelLoadError(
                f"there is no tensor '{name}' in GGUF model '{self.path}'",
                did_you_mean(name, self._places),
                f"it has {len(self._places)} tensors",
            )
        header, info = place
        if info.type_name not in BLOCK_TYPES:
            raise ModelLoadError(
                f"tensor '{name}' is of type {info.type_name}, which cannot be decoded here",
                f"GGUF file '{header.path}', tensor '{info.name}'",
                f"decodable are {', '.join(BLOCK_TYPES)}",
            )
        blocks = WeightBlocks(name, info.type_name, info.shape, header.rows(info), str(header.path))
        if self._architecture.is_gemma and name.endswith("norm.weight"):
            return without_one(blocks)
        return self._in_order(blocks)

    def _in_order(self, blocks: WeightBlocks) -> WeightBlocks:
        if not self._architecture.is_interleaved:
            return blocks
        num_heads = interleaved_heads(
            blocks.name,
            self.config["num_attention_heads"],
            self.config["num_key_value_heads"],
        )
        if num_heads is None:
            return blocks
        num_rows = blocks.shape[0]
        if num_rows % (2 * num_heads):
            raise ModelLoadError(
                f"tensor '{blocks.name}' has {num_rows} rows, which {num_heads} heads cannot share",
                f"GGUF file '{blocks.source}'",
            )
        return undo_interleaving(blocks, num_heads)

    def close(self) -> None:
        """Let go of the files; blocks that were handed out keep what they view."""
        self._headers = []
        self._places = {}
