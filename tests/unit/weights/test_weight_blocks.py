"""Weight blocks: sizes, and rows as slices and permutations."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.interfaces.weights import BLOCK_TYPES, WeightBlocks


def blocks_of(shape: tuple[int, ...], row_bytes: int) -> WeightBlocks:
    rows = int(np.prod(shape[:-1]))
    data = np.arange(rows * row_bytes, dtype=np.uint8).reshape(rows, row_bytes)
    return WeightBlocks("w", "Q8_0", shape, data, "file")


def test_sizes() -> None:
    blocks = blocks_of((3, 64), 68)
    assert (blocks.num_rows, blocks.columns, blocks.num_bytes) == (3, 64, 204)
    assert BLOCK_TYPES["Q8_0"].row_bytes(64) == 68
    assert BLOCK_TYPES["Q4_K"].bits_per_weight == 4.5
    vector = blocks_of((4,), 16)
    assert (vector.num_rows, vector.columns) == (1, 4)


def test_rows_are_a_view() -> None:
    blocks = blocks_of((4, 32), 34)
    part = blocks.rows(1, 3)
    assert part.shape == (2, 32)
    assert np.shares_memory(part.data, blocks.data)
    np.testing.assert_array_equal(part.data, blocks.data[1:3])


def test_permuted_rows_are_a_copy() -> None:
    blocks = blocks_of((3, 32), 34)
    permuted = blocks.permute_rows(np.array([2, 0, 1]))
    assert permuted.shape == blocks.shape
    np.testing.assert_array_equal(permuted.data, blocks.data[[2, 0, 1]])
    assert permuted.data.flags.c_contiguous
    assert not np.shares_memory(permuted.data, blocks.data)


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="33 columns are no whole groups of 32"):
        BLOCK_TYPES["Q8_0"].row_bytes(33)
    with pytest.raises(ValueError, match="w is no matrix"):
        blocks_of((4,), 16).rows(0, 1)
    with pytest.raises(ValueError, match="w has 3 rows, not"):
        blocks_of((3, 32), 34).permute_rows(np.array([0, 1]))
