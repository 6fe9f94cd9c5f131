"""What a rank takes of a tensor, of every block type and wherever its share begins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.errors import ModelLoadError
from octavo.execution.sharding import share_of_blocks
from octavo.interfaces.weights import BLOCK_TYPES, WeightBlocks
from octavo_kernels.reference.dequantize import dequantize
from octavo_plugins.ops.torch_ops import TorchOps
from thread_ranks import ThreadCollective


def ops_of(rank: int, size: int) -> TorchOps:
    ops = TorchOps()
    ops.collective = ThreadCollective(rank, size, None, [])
    return ops


def random_blocks(block_type: str, rows: int, columns: int, *, is_vector: bool = False):
    """Return blocks of random bytes whose scales are small numbers, never NaN."""
    row_bytes = BLOCK_TYPES[block_type].row_bytes(columns)
    data = np.random.default_rng(3).integers(0, 60, (rows, row_bytes), dtype=np.uint8)
    shape = (columns,) if is_vector else (rows, columns)
    return WeightBlocks("some.weight", block_type, shape, data, "file")


def decoded(blocks: WeightBlocks) -> torch.Tensor:
    return dequantize(blocks.block_type, torch.from_numpy(blocks.data.copy()), blocks.columns)


@pytest.mark.parametrize("block_type", BLOCK_TYPES)
def test_columns_are_cut_wherever_the_share_begins(block_type):
    group = BLOCK_TYPES[block_type].group
    for size, columns in ((2, 2 * group), (3, 6 * group), (2, 3 * group), (4, group)):
        if columns % size:
            continue
        whole = random_blocks(block_type, 3, columns)
        shares = [share_of_blocks(whole, "columns", ops_of(r, size)) for r in range(size)]
        assert [share.shape for share in shares] == [(3, columns // size)] * size
        assert torch.equal(torch.cat([decoded(one) for one in shares], 1), decoded(whole))
        is_aligned = columns // size % group == 0
        assert {share.block_type for share in shares} <= {block_type if is_aligned else "F32"}


def test_rows_are_views_and_rows_of_a_vector_are_its_elements():
    whole = random_blocks("Q4_1", 6, 64)
    share = share_of_blocks(whole, "rows", ops_of(1, 3))
    assert share.shape == (2, 64)
    assert np.shares_memory(share.data, whole.data)
    vector = random_blocks("F32", 1, 6, is_vector=True)
    share = share_of_blocks(vector, "rows", ops_of(2, 3))
    assert share.shape == (2,)
    np.testing.assert_array_equal(share.data.view("f4"), vector.data.view("f4")[:, 4:])


def test_what_is_not_split_is_whole():
    whole = random_blocks("Q4_1", 6, 64)
    assert share_of_blocks(whole, "none", ops_of(1, 3)) is whole
    assert share_of_blocks(whole, "columns", TorchOps()) is whole


def test_unequal_shares_are_refused():
    with pytest.raises(ModelLoadError) as error:
        share_of_blocks(random_blocks("F32", 5, 4), "rows", ops_of(0, 2))
    assert str(error.value) == "2 ranks cannot share 'some.weight' equally: its length is 5"
