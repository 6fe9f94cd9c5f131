"""The reference decoder against the `gguf` package's, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf import dequantize as gguf_dequantize

from octavo.interfaces.weights import BLOCK_TYPES
from octavo_kernels.reference.dequantize import dequantizable, dequantize, is_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

# the bytes at which each block type keeps its float16 scales
SCALE_OFFSETS = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
}
EDGE_SCALES = (0.0, -0.0, 1.0, 65504.0, -65504.0, 6e-8, float("inf"), float("nan"))


def random_blocks(block_type: str, rows: int, columns: int) -> NDArray[np.uint8]:
    """Random bytes, with finite scales: half of them ordinary, half edge values."""
    layout = BLOCK_TYPES[block_type]
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, (rows, layout.row_bytes(columns)), dtype=np.uint8)
    blocks = data.reshape(-1, layout.bytes_per_block)
    for offset in SCALE_OFFSETS.get(block_type, ()):
        scales = rng.normal(0, 0.1, len(blocks)).astype(np.float16)
        edges = np.array(EDGE_SCALES, dtype=np.float16)
        scales[::2] = rng.permutation(np.resize(edges, len(scales[::2])))
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return data


def assert_same_bits(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """Equal bit for bit, where any NaN equals any other."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(actual.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize("block_type", sorted(BLOCK_TYPES))
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_equals_gguf_bit_for_bit(block_type: str) -> None:
    data = random_blocks(block_type, rows=1100, columns=512)  # more than one chunk
    expected = gguf_dequantize(data, GGMLQuantizationType[block_type])

    actual = dequantize(block_type, torch.from_numpy(data), 512)

    assert actual.shape == (1100, 512)
    assert_same_bits(actual.numpy(), expected)


@pytest.mark.parametrize("block_type", sorted(BLOCK_TYPES))
def test_a_slice_that_lies_askew_decodes_the_same(block_type: str) -> None:
    data = torch.from_numpy(random_blocks(block_type, rows=6, columns=256))
    # one stray byte before the blocks, as a file without alignment has
    askew = torch.empty(data.numel() + 1, dtype=torch.uint8)[1:].view(data.shape)
    askew.copy_(data)

    whole = dequantize(block_type, data, 256)

    assert_same_bits(dequantize(block_type, askew, 256).numpy(), whole.numpy())
    assert_same_bits(dequantize(block_type, data[2:5], 256).numpy(), whole[2:5].numpy())


def test_the_result_is_new_memory() -> None:
    data = torch.ones((1, 4), dtype=torch.float32).view(torch.uint8)
    result = dequantize("F32", data, 4)
    result.zero_()
    assert data.view(torch.float32).tolist() == [[1.0, 1.0, 1.0, 1.0]]


def test_every_block_type_can_be_decoded() -> None:
    assert set(dequantizable()) == set(BLOCK_TYPES)


@pytest.mark.parametrize(
    ("block_type", "data", "columns", "message"),
    [
        ("Q3_X", torch.zeros((1, 18), dtype=torch.uint8), 32, "unknown block type 'Q3_X'; known"),
        ("Q4_0", torch.zeros((1, 18), dtype=torch.uint8), 64, "18 bytes for every 32, which 18"),
        ("Q4_0", torch.zeros((1, 18), dtype=torch.uint8), 31, "31 columns of Q4_0"),
        ("F16", torch.zeros((1, 18), dtype=torch.uint8), 8, "take 16 bytes a row, not 18"),
        ("F16", torch.zeros((1, 18), dtype=torch.float32), 9, "must be uint8"),
        ("F16", torch.zeros(18, dtype=torch.uint8), 9, "must be uint8"),
    ],
)
def test_bad_input_is_refused(
    block_type: str, data: torch.Tensor, columns: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        dequantize(block_type, data, columns)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 65504.0])
@pytest.mark.parametrize("block_type", sorted(BLOCK_TYPES))
def test_what_is_no_number_is_seen_in_the_scales(block_type: str, bad: float) -> None:
    columns, layout = 512, BLOCK_TYPES[block_type]
    sound = np.random.default_rng(3).integers(0, 256, (5, layout.row_bytes(columns)), np.uint8)
    blocks = sound.reshape(-1, layout.bytes_per_block)
    if block_type not in SCALE_OFFSETS:
        one = torch.tensor(
            [1.0],
            dtype={"F32": torch.float32, "F16": torch.float16}.get(block_type, torch.bfloat16),
        )
        blocks[:] = one.view(torch.uint8).numpy()
    for offset in SCALE_OFFSETS.get(block_type, ()):
        blocks[:, offset : offset + 2] = np.array([0.5], np.float16).view(np.uint8)
    assert is_finite(block_type, torch.from_numpy(sound))

    for offset in SCALE_OFFSETS.get(block_type, (0,)):
        data = sound.copy()
        value = torch.tensor([bad], dtype=torch.float16)
        if block_type not in SCALE_OFFSETS:
            value = value.to(one.dtype)
        raw = value.view(torch.uint8).numpy()
        data.reshape(-1, layout.bytes_per_block)[-1, offset : offset + len(raw)] = raw
        decoded = dequantize(block_type, torch.from_numpy(data), columns)
        assert is_finite(block_type, torch.from_numpy(data)) == bool(decoded.isfinite().all())
        assert is_finite(block_type, torch.from_numpy(data)) == bool(np.isfinite(bad))
