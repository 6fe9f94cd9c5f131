"""Random weights in every format of the CPU kernels, as blocks, packed, and as floats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from cpu_kernels import library
from octavo.interfaces.weights import BLOCK_TYPES
from octavo_kernels.cpu.memory import Arena
from octavo_kernels.cpu.packing import FORMATS, Blocks, PackedMatrix, pack
from octavo_kernels.reference.dequantize import dequantize

if TYPE_CHECKING:
    from octavo_kernels.cpu.toolchain import BuildOptions

FLOATS = ("F32", "F16", "BF16")
#: bytes of float16 scales in a block
SCALES = {name: (0,) for name in FORMATS if name not in FLOATS} | {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


@dataclass(frozen=True)
class Matrix:
    """A weight in its file's blocks, packed, and as floats."""

    blocks: Blocks
    packed: PackedMatrix
    floats: torch.Tensor


def random_data(block_type: str, rows: int, columns: int) -> np.ndarray:
    """Random blocks with scales that weights have."""
    rng = np.random.default_rng(rows + columns)
    if block_type in FLOATS:
        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[block_type]
        values = torch.from_numpy(rng.standard_normal((rows, columns)) * 0.05).to(dtype)
        return values.view(torch.uint8).numpy()
    layout = BLOCK_TYPES[block_type]
    data = rng.integers(0, 256, (rows, layout.row_bytes(columns)), dtype=np.uint8)
    blocks = data.reshape(-1, layout.bytes_per_block)
    for offset in SCALES[block_type]:
        scales = (rng.random(len(blocks)) * 0.01 + 0.001).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return data


@cache
def matrix(block_type: str, rows: int, columns: int, options: BuildOptions) -> Matrix:
    data = random_data(block_type, rows, columns)
    packed = pack(library(options), [Blocks(block_type, data, columns)], Arena(), 2)
    assert packed is not None
    return Matrix(
        Blocks(block_type, data, columns),
        packed,
        dequantize(block_type, torch.from_numpy(data), columns),
    )


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))
