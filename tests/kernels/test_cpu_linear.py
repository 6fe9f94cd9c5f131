"""Linear layers of the CPU kernels: every format and both modes, against float64 and torch."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from cpu_kernels import call, count, library, run, variants
from cpu_matrices import FLOATS, SCALES, matrix, noise, random_data
from octavo.interfaces.weights import BLOCK_TYPES
from octavo_kernels.cpu.memory import Arena
from octavo_kernels.cpu.packing import FORMATS, Blocks, PackedMatrix, linear_bytes, pack
from octavo_kernels.cpu.toolchain import BuildOptions

#: numbers of rows on both sides of tiles of 4 and of 8, and of a stack of 16
ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 37)


def variant_options() -> list[BuildOptions]:
    return [BuildOptions(architecture=name) for name in variants()]


def multiply(
    weight: PackedMatrix,
    x: torch.Tensor,
    options: BuildOptions,
    *,
    is_exact: bool = False,
    bias: torch.Tensor | None = None,
    num_threads: int = 2,
) -> torch.Tensor:
    """x [rows, columns] @ weight.T + bias, from a view and into one with other strides."""
    wide = torch.full((len(x) + 1, weight.rows + 5), float("nan"))
    run(
        [
            call(
                "linear",
                linear_bytes(library(options), len(x), weight.columns),
                out=wide,
                x=x,
                weight=weight,
                bias=bias,
                rows=count(len(x)),
                out_stride=wide.stride(0),
                x_stride=x.stride(0),
                columns=weight.columns,
                outputs=weight.rows,
                format=weight.format,
                is_exact=is_exact,
                is_laid_out=False,
            )
        ],
        options,
        num_threads,
    )
    assert wide[len(x) :].isnan().all()
    assert wide[:, weight.rows :].isnan().all()
    return wide[: len(x), : weight.rows].clone()


def rounded(x: torch.Tensor) -> torch.Tensor:
    """x [rows, columns] as mode `fast` takes it: bytes with a scale for each 32 columns."""
    groups = torch.nn.functional.pad(x, (0, -x.shape[1] % 32)).view(len(x), -1, 32)
    top = groups.abs().amax(-1, keepdim=True)
    codes = (groups * (127 / top)).round()
    return (codes * (top / 127)).view(len(x), -1)[:, : x.shape[1]]


@pytest.mark.parametrize("options", variant_options(), ids=lambda one: one.architecture)
@pytest.mark.parametrize("block_type", FORMATS)
@pytest.mark.parametrize("outputs", [37, 96])
def test_products_are_those_of_the_decoded_weights(block_type, options, outputs):
    weight = matrix(block_type, outputs, 512, options)
    x, bias = noise(13, 512), noise(outputs)

    exact = multiply(weight.packed, x, options, is_exact=True, bias=bias)
    fast = multiply(weight.packed, x, options, bias=bias)

    wide = weight.floats.double()
    wanted = x.double() @ wide.T + bias
    size = x.double().abs() @ wide.abs().T  # what the sums' terms add up to
    assert ((exact - wanted).abs() <= 1e-6 * size + 1e-6).all()
    wanted = (x if block_type in FLOATS else rounded(x)).double() @ wide.T + bias
    # a tie may be rounded the other way: 1 / 127 of a term
    assert ((fast - wanted).abs() <= 1e-4 * size + 1e-6).all()


@pytest.mark.parametrize("options", variant_options(), ids=lambda one: one.architecture)
@pytest.mark.parametrize("is_exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("block_type", FORMATS)
def test_a_row_has_the_same_bits_alone_and_among_any_others(block_type, options, is_exact):
    weight = matrix(block_type, 96, 512, options).packed
    x = noise(ROWS[-1], 512)
    whole = multiply(weight, x, options, is_exact=is_exact)

    for rows in ROWS:
        for num_threads in (1, 2):
            some = {"is_exact": is_exact, "num_threads": num_threads}
            assert torch.equal(multiply(weight, x[:rows], options, **some), whole[:rows])
            assert torch.equal(multiply(weight, x[-rows:], options, **some), whole[-rows:])


@pytest.mark.parametrize("options", variant_options(), ids=lambda one: one.architecture)
@pytest.mark.parametrize("block_type", FLOATS)
def test_floats_may_have_any_number_of_columns(block_type, options):
    weight = matrix(block_type, 20, 45, options)
    x = noise(5, 64)[:, :45]

    product = multiply(weight.packed, x, options)

    torch.testing.assert_close(product, x @ weight.floats.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", variant_options(), ids=lambda one: one.architecture)
def test_several_matrices_are_packed_as_one(options):
    lanes = library(options).lanes
    parts = [random_data("Q4_K", rows, 256) for rows in (2 * lanes, lanes, 5)]

    packed = pack(library(options), [Blocks("Q4_K", part, 256) for part in parts], Arena(), 2)

    x = noise(3, 256)
    one_by_one = [
        multiply(matrix("Q4_K", len(part), 256, options).packed, x, options) for part in parts
    ]
    assert torch.equal(multiply(packed, x, options), torch.cat(one_by_one, 1))


@pytest.mark.parametrize("options", variant_options(), ids=lambda one: one.architecture)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("block_type", ["Q4_1", "F32"])
def test_what_is_no_number_shows_in_its_own_row_alone(block_type, value, options):
    weight = matrix(block_type, 96, 512, options).packed
    x = noise(6, 512)
    clean = multiply(weight, x, options)
    x[2, 77] = value

    product = multiply(weight, x, options)

    assert not product[2].isfinite().any()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(product[others], clean[others])


@pytest.mark.parametrize("value", [0.0, 1e-38, 1e-40, 1e30])
def test_activations_may_be_tiny_or_huge(value):
    weight = matrix("Q8_0", 32, 64, variant_options()[0])
    x = torch.full((2, 64), value)

    product = multiply(weight.packed, x, variant_options()[0])

    wanted = (x.double() @ weight.floats.double().T).float()
    torch.testing.assert_close(product, wanted, rtol=1e-3, atol=1e-35)


@pytest.mark.parametrize("block_type", FORMATS)
def test_weights_that_are_no_numbers_are_not_packed(block_type):
    data = random_data(block_type, 20, 256)
    nan = np.array([np.nan], {"F32": np.float32}.get(block_type, np.float16))
    if block_type == "BF16":
        nan = np.array([0x7FC0], np.uint16)
    offset = 0 if block_type in FLOATS else SCALES[block_type][-1]
    data[7, offset : offset + nan.itemsize] = nan.view(np.uint8)

    assert pack(library(), [Blocks(block_type, data, 256)], Arena(), 2) is None


@pytest.mark.parametrize("options", variant_options(), ids=lambda one: one.architecture)
@pytest.mark.parametrize("block_type", FORMATS)
def test_an_embedding_is_a_row_of_the_decoded_weights(block_type, options):
    weight = matrix(block_type, 96, 512, options)
    ids = torch.tensor([0, 95, 17, 17, 31])
    out = torch.zeros(6, 512)

    run(
        [
            call(
                "embedding",
                out=out,
                ids=ids,
                weight=weight.packed,
                rows=count(5),
                columns=512,
                format=weight.packed.format,
            )
        ],
        options,
    )

    # a scale times a code, plus a min: rounded once here and twice there
    torch.testing.assert_close(out[:5], weight.floats[ids], rtol=1e-6, atol=1e-7)
    assert not out[5].any()


def test_a_panel_takes_the_bytes_of_its_blocks():
    """But for K-quants, whose 6-bit scales take a byte each."""
    size = library().function("octavo_panel_bytes")
    for number, name in enumerate(FORMATS):
        in_file = BLOCK_TYPES[name].row_bytes(512) * library().lanes
        packed = size(ctypes.c_int64(number), ctypes.c_int64(512))
        assert in_file <= packed <= in_file * (1.04 if name.endswith("_K") else 1.0), name
