"""Matrices of packed weights: how large they are, and how they are made from a file's blocks.

Knows formats and panels (formats.h). Does not know where blocks come from, nor products.
"""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo_kernels.cpu.library import Library
    from octavo_kernels.cpu.memory import Arena

#: The block types that are packed, in the order of FORMATS in linear.cpp.
FORMATS: Final = (
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "F32",
    "F16",
    "BF16",
)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix as its file holds it: uint8 [rows, bytes per row], of `columns` weights a row."""

    block_type: str
    data: NDArray[np.uint8]
    columns: int


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix in panels: uint8 [bytes], aligned to a cache line."""

    format: int
    data: NDArray[np.uint8]
    rows: int
    columns: int

    @property
    def address(self) -> int:
        """Return where the first panel lies."""
        return int(self.data.ctypes.data)


def pack(
    library: Library, parts: list[Blocks], arena: Arena, num_threads: int
) -> PackedMatrix | None:
    """Join matrices of one block type, and of as many columns, along their rows, and pack them.

    The memory is taken from `arena`. All but the last must have whole panels of rows
    (`library.lanes`). Returns None where a scale or a weight is NaN or infinite.
    """
    first = parts[0]
    number = FORMATS.index(first.block_type)
    panel_bytes = library.function("octavo_panel_bytes")(c_int64(number), c_int64(first.columns))
    num_panels = sum(-(-len(part.data) // library.lanes) for part in parts)
    data = arena.take(num_panels * panel_bytes)
    pack_rows = library.function("octavo_pack")
    start = 0
    for part in parts:
        source = np.ascontiguousarray(part.data)
        is_finite = pack_rows(
            c_int64(number),
            c_void_p(source.ctypes.data),
            c_int64(source.strides[0]),
            c_int64(len(source)),
            c_int64(part.columns),
            c_void_p(data[start:].ctypes.data),
            c_int64(panel_bytes),
            c_int64(num_threads),
        )
        if not is_finite:
            return None
        start += -(-len(source) // library.lanes) * panel_bytes
    return PackedMatrix(number, data, sum(len(part.data) for part in parts), first.columns)


def linear_bytes(library: Library, max_rows: int, columns: int) -> int:
    """Return the shared memory that `linear` wants for so many rows of activations."""
    size: int = library.function("octavo_linear_bytes")(c_int64(max_rows), c_int64(columns))
    return size
