"""Weights as the CPU kernels multiply them: packed from a file's blocks, once.

Knows blocks and the kernels' packing. Does not know operations or models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.weights import not_finite
from octavo_kernels.cpu.packing import FORMATS, Blocks, PackedMatrix, pack
from octavo_kernels.reference.dequantize import is_finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.weights import WeightBlocks
    from octavo_kernels.cpu.library import Library
    from octavo_kernels.cpu.memory import Arena

BLOCK_TYPES: Final = FORMATS
_FLOATS: Final = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class PackedPart:
    """The outputs from `first` on: rows of one block type."""

    matrix: PackedMatrix
    first: int
    is_float: bool


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight [out, in] in as many parts as it takes: one where all rows are of one type."""

    parts: tuple[PackedPart, ...]


def pack_blocks(library: Library, arena: Arena, blocks: Sequence[WeightBlocks]) -> PackedLinear:
    """Pack weights [out_i, in], joined along `out`.

    Raises UnsupportedError for a block type that has no kernel, and ModelLoadError for weights
    that are NaN or infinite; both name the tensor.
    """
    parts: list[PackedPart] = []
    first = 0
    for group in _alike(blocks, library.lanes):
        names = ", ".join(one.name for one in group)
        if group[0].block_type not in BLOCK_TYPES:
            raise UnsupportedError(
                f"the cpu op set cannot multiply weights of block type '{group[0].block_type}'",
                f"tensor: {names} ({group[0].source})",
                f"block types it takes: {', '.join(BLOCK_TYPES)}",
            )
        sources = [Blocks(one.block_type, one.data, one.columns) for one in group]
        matrix = pack(library, sources, arena, torch.get_num_threads())
        if matrix is None:
            # scales that the kernels' floats cannot hold are finite in the file
            raise not_finite([one for one in group if not _is_finite(one)] or group)
        parts.append(PackedPart(matrix, first, group[0].block_type in _FLOATS))
        first += matrix.rows
    return PackedLinear(tuple(parts))


def _is_finite(one: WeightBlocks) -> bool:
    return is_finite(one.block_type, torch.from_numpy(one.data.copy()))


def _alike(blocks: Sequence[WeightBlocks], lanes: int) -> list[list[WeightBlocks]]:
    """Return blocks in runs that one matrix can hold: of one type, in whole panels of rows."""
    groups: list[list[WeightBlocks]] = []
    for one in blocks:
        last = groups[-1] if groups else None
        if last and last[-1].block_type == one.block_type and last[-1].num_rows % lanes == 0:
            last.append(one)
        else:
            groups.append([one])
    return groups
