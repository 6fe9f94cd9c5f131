"""The weights kind: a file format, opened as a checkpoint of named blocks.

Knows names, shapes, block types and bytes in a mapped file. Does not know torch, tokenizers,
architectures, or how any block is decoded (`octavo_kernels.reference.dequantize` does).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from octavo.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


_MATRIX: Final = 2


@dataclass(frozen=True, slots=True)
class BlockType:
    """A layout of weights in memory: `group` elements of a row take `bytes_per_block` bytes."""

    name: str
    group: int
    bytes_per_block: int

    @property
    def bits_per_weight(self) -> float:
        """Return the average number of bits that one element takes."""
        return 8 * self.bytes_per_block / self.group

    def row_bytes(self, columns: int) -> int:
        """Return the bytes of a row. Raises ValueError unless its columns are whole groups."""
        if columns % self.group:
            raise ValueError(f"{columns} columns are no whole groups of {self.group}")
        return columns // self.group * self.bytes_per_block


#: Every canonical block type. The quantised ones are ggml's: scales first, quants after.
BLOCK_TYPES: Final[Mapping[str, BlockType]] = MappingProxyType(
    {
        block_type.name: block_type
        for block_type in (
            BlockType("F32", 1, 4),
            BlockType("F16", 1, 2),
            BlockType("BF16", 1, 2),
            BlockType("Q8_0", 32, 34),
            BlockType("Q4_0", 32, 18),
            BlockType("Q4_1", 32, 20),
            BlockType("Q5_0", 32, 22),
            BlockType("Q5_1", 32, 24),
            BlockType("Q4_K", 256, 144),
            BlockType("Q5_K", 256, 176),
            BlockType("Q6_K", 256, 210),
            BlockType("IQ4_NL", 32, 18),
        )
    }
)


@dataclass(frozen=True, slots=True)
class WeightBlocks:
    """One tensor of a checkpoint, as it lies in its file.

    `name` is the Hugging Face name. `shape` is logical and row-major: the last dimension is the
    columns, all others together are the rows (a vector is one row). `data` is uint8
    [rows, bytes per row], a view of the mapped file where the format allows it: it stays valid
    after the checkpoint is closed, and nobody may write into it. `source` is the file.
    """

    name: str
    block_type: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    source: str

    @property
    def columns(self) -> int:
        """Return the elements of a row."""
        return self.shape[-1] if self.shape else 1

    @property
    def num_rows(self) -> int:
        """Return the rows of `data`."""
        return math.prod(self.shape[:-1])

    @property
    def num_bytes(self) -> int:
        """Return the bytes that the blocks take."""
        return self.data.nbytes

    def rows(self, start: int, stop: int) -> WeightBlocks:
        """Return the rows from `start` up to `stop` of a matrix, without copying."""
        if len(self.shape) != _MATRIX:
            raise ValueError(f"{self.name} is no matrix: {self.shape}")
        return replace(self, shape=(stop - start, self.columns), data=self.data[start:stop])

    def cut_columns(self, start: int, stop: int) -> WeightBlocks:
        """Return a copy of the columns from `start` up to `stop`, which are whole groups.

        Raises ValueError when they are not.
        """
        row_bytes = BLOCK_TYPES[self.block_type].row_bytes
        data = np.ascontiguousarray(self.data[:, row_bytes(start) : row_bytes(stop)])
        return replace(self, shape=(*self.shape[:-1], stop - start), data=data)

    def permute_rows(self, index: NDArray[np.intp]) -> WeightBlocks:
        """Return a copy whose row i is row `index[i]`; `index` has one entry for each row."""
        if index.shape != (self.num_rows,):
            raise ValueError(f"{self.name} has {self.num_rows} rows, not {index.shape}")
        return replace(self, data=np.ascontiguousarray(self.data[index]))


def not_finite(blocks: Sequence[WeightBlocks]) -> ModelLoadError:
    """Return the error of tensors that hold what is no number."""
    names = ", ".join(one.name for one in blocks)
    return ModelLoadError(
        f"the tensor {names} holds weights that are NaN or infinite",
        f"file: {blocks[0].source}",
        "the file is damaged, or was made from a model that is",
    )


@dataclass(frozen=True, slots=True)
class PoolingDescription:
    """How a model's files say that vectors are made of its hidden states.

    `mode`: "last" (the last token's), "mean" (of all tokens), or a word for what else is meant.
    `is_normalized`: vectors have length 1.
    """

    mode: str
    is_normalized: bool = True


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What a server must know of a model before, or without, touching its weights.

    `config` and `generation_config` are as in `Checkpoint`. `tokenizer_path` is what a
    `octavo.interfaces.tokenizer.TokenizerFormat` opens. `pooling` is None where the files say
    nothing of it, as those of most models. A model that was saved without its head cannot
    generate; it makes vectors.
    """

    path: Path
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_path: Path | None = None
    pooling: PoolingDescription | None = None
    can_generate: bool = True


class Checkpoint(ABC):
    """An opened model: a config and named weight blocks.

    W1  `config` and `generation_config` speak Hugging Face's language whatever the format.
    W2  every name in `names()` can be read by `blocks()`, or gives a `ModelLoadError` that names
        the tensor and the file.
    W3  only files that belong to the checkpoint are read: no stray file beside them.
    W4  a missing, truncated or inconsistent file is an error when opening, never later garbage.
    W5  `close()` twice is fine; blocks that were handed out stay valid.

    `config` has the keys of a Hugging Face `config.json`. `architectures` and `vocab_size` are
    always there, and so is rotary scaling in both of Hugging Face's spellings: `rope_parameters`
    (with `rope_type` and `rope_theta`), and `rope_theta` beside `rope_scaling` (None when
    unscaled). `rope_frequency_factors` is a list of divisors of the inverse frequencies, only for
    a GGUF whose `rope_freqs.weight` no `llama3` scaling explains. `max_position_embeddings`
    includes what yarn or linear scaling adds.
    """

    def __init__(self, description: ModelDescription) -> None:
        self.description = description

    @property
    def path(self) -> Path:
        """Return the file or folder that was opened."""
        return self.description.path

    @property
    def config(self) -> Mapping[str, Any]:
        """Return the model's config."""
        return self.description.config

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """Return defaults of sampling and the end tokens, as in `generation_config.json`."""
        return self.description.generation_config

    @abstractmethod
    def names(self) -> list[str]:
        """Return the Hugging Face names of all tensors, in the order of the file."""

    @abstractmethod
    def blocks(self, name: str) -> WeightBlocks:
        """Return one tensor.

        Raises `octavo.errors.ModelLoadError` naming tensor and file, if there is no such tensor
        or its layout is none of `BLOCK_TYPES`.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""


class WeightsFormat(ABC):
    """A file format.  Its constructor takes the component's options and reads no file.

    Of the checkpoints that it opens, W1 to W5 say what `Checkpoint` says:

    W1  configs speak Hugging Face's language, the same from `open` and from `open_config`.
    W2  every name can be read, in its shape and type; another is a ModelLoadError that names it.
    W3  only files that belong to the checkpoint are read: no stray file beside them.
    W4  a truncated or inconsistent file is an error when opening, never later garbage.
    W5  `close()` twice is fine; blocks that were handed out stay valid.
    W6  a path without such a checkpoint has reasons in `why_not`, and raises ModelLoadError; one
        with it has none, but for formats that offer `by-name-only`.
    """

    @abstractmethod
    def why_not(self, path: Path) -> list[str]:
        """Return the reasons why this format cannot open `path`; none means it can.

        Looks at names and the first bytes only, so that `auto` may ask every format.
        """

    @abstractmethod
    def open(self, path: Path) -> Checkpoint:
        """Open a checkpoint. Raises `octavo.errors.ModelLoadError` and then holds no file open."""

    @abstractmethod
    def open_config(self, path: Path) -> ModelDescription:
        """Read the description alone, without importing torch or mapping any weights."""
