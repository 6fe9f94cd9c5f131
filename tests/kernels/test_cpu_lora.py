"""Low-rank changes of linear layers by the CPU kernels, against float64."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch

from cpu_kernels import call, count, library, run, variants
from cpu_matrices import matrix
from octavo_kernels.cpu.lora import LowRankFactors, SegmentTable, SlotTable
from octavo_kernels.cpu.memory import Arena
from octavo_kernels.cpu.packing import linear_bytes
from octavo_kernels.cpu.toolchain import BuildOptions

if TYPE_CHECKING:
    from octavo_kernels.cpu.library import Call

COLUMNS, OUTPUTS, TOKENS = 77, 300, 9
#: (rank, outputs, first output) of each change: side by side, over one another, and of one vector
CHANGES = {0: [(4, 100, 0), (3, 129, 100)], 2: [(8, 300, 0)], 3: [(1, 1, 299), (16, 30, 255)]}
#: the tokens of each slot; the second token is changed by two, and slot 1 has no changes here
SEGMENTS = [(0, [1, 3, 8]), (1, [2]), (2, [1, 0]), (3, [5])]


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def factors(slot: int, columns: int = COLUMNS) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    return [
        (noise(rank, columns, seed=slot), noise(outputs, rank, seed=slot + 1), first)
        for rank, outputs, first in CHANGES[slot]
    ]


def adapt_call(
    out: torch.Tensor,
    x: torch.Tensor,
    segments: list[tuple[int, list[int]]],
    options: BuildOptions,
    *,
    is_half: bool = True,
) -> Call:
    """The call that changes `out`, with the factors of any number of columns."""
    lib, arena = library(options), Arena()
    table = SlotTable(
        {
            slot: LowRankFactors.of(
                factors(slot, x.shape[1]), arena, lanes=lib.lanes, is_half=is_half
            )
            for slot in CHANGES
        }
    )
    batch = SegmentTable()
    batch.fill(
        [
            (slot, torch.tensor(tokens), torch.full((len(tokens), 1), 0.5 + slot))
            for slot, tokens in segments
        ]
    )
    one = call(
        "adapt",
        4 * table.max_rank * len(x) * table.num_slots + linear_bytes(lib, len(x), x.shape[1]),
        out=out,
        x=x,
        by_slot=ctypes.addressof(table.records),
        batch=ctypes.addressof(batch.record),
        num_slots=table.num_slots,
        max_rank=table.max_rank,
        out_stride=out.stride(0),
        x_stride=x.stride(0),
        columns=x.shape[1],
        outputs=OUTPUTS,
    )
    return dataclasses.replace(one, keep=(*one.keep, table, batch))


def adapt(
    out: torch.Tensor,
    x: torch.Tensor,
    segments: list[tuple[int, list[int]]],
    options: BuildOptions,
    num_threads: int = 2,
    *,
    is_half: bool = True,
) -> torch.Tensor:
    result = out.clone()
    run([adapt_call(result, x, segments, options, is_half=is_half)], options, num_threads)
    return result


def linear_calls(
    out: torch.Tensor, x: torch.Tensor, parts: list[int], options: BuildOptions, *, is_exact: bool
) -> list[Call]:
    """Linear layers whose results lie side by side in `out`."""
    made, first = [], 0
    for outputs in parts:
        packed = matrix("Q4_1", outputs, x.shape[1], options).packed
        made.append(
            call(
                "linear",
                linear_bytes(library(options), len(x), x.shape[1]),
                out=out[:, first:],
                x=x,
                weight=packed,
                rows=count(len(x)),
                out_stride=out.stride(0),
                x_stride=x.stride(0),
                columns=x.shape[1],
                outputs=outputs,
                format=packed.format,
                is_exact=is_exact,
                is_laid_out=first > 0,
            )
        )
        first += outputs
    return made


@pytest.fixture(params=variants())
def options(request):
    return BuildOptions(architecture=request.param)


@pytest.mark.parametrize("is_half", [False, True])
def test_changes_are_those_of_the_factors(options, is_half):
    x, out = noise(TOKENS, COLUMNS, seed=9), noise(TOKENS, OUTPUTS, seed=8)

    result = adapt(out, x, SEGMENTS, options, is_half=is_half)

    wanted = out.double()
    for slot, tokens in SEGMENTS:
        for a, b, first in factors(slot) if slot in CHANGES else ():
            kept_a, kept_b = (one.half().double() if is_half else one.double() for one in (a, b))
            change = (0.5 + slot) * (x[tokens].double() @ kept_a.T) @ kept_b.T
            wanted[tokens, first : first + len(b)] += change
    torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=1e-4)
    untouched = [2, 4, 6, 7]
    assert torch.equal(result[untouched], out[untouched])


def test_a_token_has_the_same_bits_whoever_else_is_changed(options):
    x, out = noise(TOKENS, COLUMNS, seed=9), noise(TOKENS, OUTPUTS, seed=8)
    whole = adapt(out, x, SEGMENTS, options)

    for token in (1, 5, 8):
        alone = [(slot, [token]) for slot, tokens in SEGMENTS if token in tokens]
        for num_threads in (1, 2):
            assert torch.equal(adapt(out, x, alone, options, num_threads)[token], whole[token])


#: rows and columns; with the last, rows are more than are gone through for one panel
SHAPES = [(9, 64), (40, 96), (70, 2048)]


def test_a_token_has_the_same_bits_among_many_of_its_adapter(options):
    tokens = list(range(45))
    x, out = noise(len(tokens), COLUMNS, seed=9), noise(len(tokens), OUTPUTS, seed=8)
    whole = adapt(out, x, [(0, tokens[:8]), (3, tokens[8:])], options)

    for token in tokens:
        alone = adapt(out, x, [(0 if token < 8 else 3, [token])], options)
        assert torch.equal(alone[token], whole[token])


@pytest.mark.parametrize("parts", [[300], [160, 140], [161, 139]], ids=str)
@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_changes_have_the_same_bits_made_along_with_the_linear_layer(
    options, rows, columns, is_exact, parts
):
    x, out = noise(rows, columns, seed=9), torch.zeros(rows, OUTPUTS)
    run(linear_calls(out, x, parts, options, is_exact=is_exact), options)
    wanted = adapt(out, x, SEGMENTS, options)

    for num_threads in (1, 2):
        result = torch.zeros(rows, OUTPUTS)
        linears = linear_calls(result, x, parts, options, is_exact=is_exact)
        change = adapt_call(result, x, SEGMENTS, options)
        run([*linears, change, *linears, change], options, num_threads)
        assert torch.equal(result, wanted)


def test_a_change_of_another_result_is_made_by_itself(options):
    x, out = noise(TOKENS, 96, seed=9), noise(TOKENS, OUTPUTS, seed=8)
    other, result = torch.zeros(TOKENS, OUTPUTS), out.clone()
    linears = linear_calls(other, x, [300], options, is_exact=False)

    run([*linears, adapt_call(result, x, SEGMENTS, options)], options)

    assert torch.equal(result, adapt(out, x, SEGMENTS, options))
    alone = torch.zeros(TOKENS, OUTPUTS)
    run(linear_calls(alone, x, [300], options, is_exact=False), options)
    assert torch.equal(other, alone)


def test_no_segments_change_nothing(options):
    x, out = noise(TOKENS, COLUMNS, seed=9), noise(TOKENS, OUTPUTS, seed=8)

    assert torch.equal(adapt(out, x, [], options), out)


@pytest.mark.parametrize("power", [-20, 14, 20])
def test_factors_of_unlike_size_lose_nothing_in_halves(power):
    a, b = noise(4, COLUMNS), noise(OUTPUTS, 4)
    kept = LowRankFactors.of([(a, b, 0)], Arena(), lanes=16, is_half=True)
    other = LowRankFactors.of(
        [(a * 2.0**power, b * 2.0**-power, 0)], Arena(), lanes=16, is_half=True
    )

    assert torch.equal(kept.a, other.a)
    assert torch.equal(kept.panels[0], other.panels[0])


def test_factors_that_are_too_large_for_halves_stay_floats():
    a, b = noise(4, COLUMNS), noise(OUTPUTS, 4)
    kept = LowRankFactors.of([(a, b, 0)], Arena(), lanes=16, is_half=True)
    large = LowRankFactors.of([(a * 1e5, b * 1e5, 0)], Arena(), lanes=16, is_half=True)

    assert (kept.a.dtype, large.a.dtype) == (torch.float16, torch.float32)
    product = (
        large.panels[0].transpose(1, 2).reshape(-1, 4)[:OUTPUTS]
        @ (large.a.transpose(1, 2).reshape(4, -1)[:, :COLUMNS])
    )
    torch.testing.assert_close(product, (b * 1e5) @ (a * 1e5))
