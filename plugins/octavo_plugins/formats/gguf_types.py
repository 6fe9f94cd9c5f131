"""The numbers that GGUF files use for types of values and of tensors.

Source: the GGUF specification and ggml.h. Knows sizes. Does not know how a block is decoded.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from octavo.interfaces.weights import BlockType

if TYPE_CHECKING:
    from collections.abc import Mapping

STRING: Final = 8
ARRAY: Final = 9
BOOL: Final = 7

#: numbers of scalar value types -> (name, numpy dtype)
SCALARS: Final[Mapping[int, tuple[str, str]]] = MappingProxyType(
    {
        0: ("uint8", "<u1"),
        1: ("int8", "<i1"),
        2: ("uint16", "<u2"),
        3: ("int16", "<i2"),
        4: ("uint32", "<u4"),
        5: ("int32", "<i4"),
        6: ("float32", "<f4"),
        BOOL: ("bool", "<u1"),
        10: ("uint64", "<u8"),
        11: ("int64", "<i8"),
        12: ("float64", "<f8"),
    }
)

#: numbers of tensor types -> layout, also of those that Octavo cannot decode: their sizes are
#: needed to check a file. Numbers that are missing were withdrawn by ggml.
TENSOR_TYPES: Final[Mapping[int, BlockType]] = MappingProxyType(
    {
        0: BlockType("F32", 1, 4),
        1: BlockType("F16", 1, 2),
        2: BlockType("Q4_0", 32, 18),
        3: BlockType("Q4_1", 32, 20),
        6: BlockType("Q5_0", 32, 22),
        7: BlockType("Q5_1", 32, 24),
        8: BlockType("Q8_0", 32, 34),
        9: BlockType("Q8_1", 32, 40),
        10: BlockType("Q2_K", 256, 84),
        11: BlockType("Q3_K", 256, 110),
        12: BlockType("Q4_K", 256, 144),
        13: BlockType("Q5_K", 256, 176),
        14: BlockType("Q6_K", 256, 210),
        15: BlockType("Q8_K", 256, 292),
        16: BlockType("IQ2_XXS", 256, 66),
        17: BlockType("IQ2_XS", 256, 74),
        18: BlockType("IQ3_XXS", 256, 98),
        19: BlockType("IQ1_S", 256, 50),
        20: BlockType("IQ4_NL", 32, 18),
        21: BlockType("IQ3_S", 256, 110),
        22: BlockType("IQ2_S", 256, 82),
        23: BlockType("IQ4_XS", 256, 136),
        24: BlockType("I8", 1, 1),
        25: BlockType("I16", 1, 2),
        26: BlockType("I32", 1, 4),
        27: BlockType("I64", 1, 8),
        28: BlockType("F64", 1, 8),
        29: BlockType("IQ1_M", 256, 56),
        30: BlockType("BF16", 1, 2),
        34: BlockType("TQ1_0", 256, 54),
        35: BlockType("TQ2_0", 256, 66),
        39: BlockType("MXFP4", 32, 17),
        40: BlockType("NVFP4", 64, 36),
        41: BlockType("Q1_0", 128, 18),
    }
)
