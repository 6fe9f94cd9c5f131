"""Weights that are NaN or infinite are refused at load, by the name of the tensor that has them."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import ModelLoadError
from octavo.interfaces.weights import BLOCK_TYPES, WeightBlocks
from octavo_plugins.ops.cpu_ops import CpuOps
from octavo_plugins.ops.cpu_options import CpuOpsOptions
from octavo_plugins.ops.torch_ops import TorchOps

OPS = [pytest.param(TorchOps, id="torch"), pytest.param(lambda: CpuOps(CpuOpsOptions()), id="cpu")]
SCALES = {"Q4_1": (0, 2), "Q8_0": (0,), "Q6_K": (208,), "F32": (0,), "BF16": (0,)}
NAN = {"F32": np.array([np.nan], np.float32), "BF16": np.array([0x7FC0], np.uint16)}


def blocks(name: str, block_type: str, bad_row: int | None = None) -> WeightBlocks:
    """Return 32 rows of 256 zeros, one of which may begin with what is no number."""
    layout = BLOCK_TYPES[block_type]
    data = np.zeros((32, layout.row_bytes(256)), np.uint8)
    if bad_row is not None:
        raw = NAN.get(block_type, np.array([np.inf], np.float16)).view(np.uint8)
        offset = SCALES[block_type][-1]
        data[bad_row, offset : offset + len(raw)] = raw
    data.flags.writeable = False  # as a mapped file is
    return WeightBlocks(name, block_type, (32, 256), data, "model.gguf")


@pytest.mark.parametrize("make", OPS)
@pytest.mark.parametrize("block_type", sorted(SCALES))
def test_of_a_fused_matrix_only_the_tensor_at_fault_is_named(make, block_type):
    parts = [blocks("q", block_type), blocks("k", block_type, 17), blocks("v", block_type)]
    with pytest.raises(ModelLoadError) as caught:
        make().pack_linear(parts)
    assert str(caught.value) == (
        "the tensor k holds weights that are NaN or infinite\n"
        "  file: model.gguf\n"
        "  the file is damaged, or was made from a model that is"
    )
    make().pack_linear([parts[0], parts[2]])


@pytest.mark.parametrize("make", OPS)
def test_an_embedding_is_named_as_well(make):
    with pytest.raises(ModelLoadError, match="the tensor embed holds weights that are NaN or inf"):
        make().pack_embedding(blocks("embed", "Q8_0", 31))
