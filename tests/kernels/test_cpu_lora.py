"""Low-rank changes of linear layers by the CPU kernels, against float64."""

from __future__ import annotations

import ctypes

import pytest
import torch

from cpu_kernels import call, run, variants
from octavo_kernels.cpu.lora import LowRankFactors, SegmentTable, SlotTable
from octavo_kernels.cpu.memory import Arena
from octavo_kernels.cpu.toolchain import BuildOptions

COLUMNS, OUTPUTS, TOKENS = 77, 300, 9
#: (rank, outputs, first output) of each change: side by side, over one another, and of one vector
CHANGES = {0: [(4, 100, 0), (3, 129, 100)], 2: [(8, 300, 0)], 3: [(1, 1, 299), (16, 30, 255)]}
#: the tokens of each slot; the second token is changed by two, and slot 1 has no changes here
SEGMENTS = [(0, [1, 3, 8]), (1, [2]), (2, [1, 0]), (3, [5])]


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def factors(slot: int) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    return [
        (noise(rank, COLUMNS, seed=slot), noise(outputs, rank, seed=slot + 1), first)
        for rank, outputs, first in CHANGES[slot]
    ]


def adapt(
    out: torch.Tensor,
    x: torch.Tensor,
    segments: list[tuple[int, list[int]]],
    options: BuildOptions,
    num_threads: int = 2,
    *,
    is_half: bool = True,
) -> torch.Tensor:
    arena = Arena()
    table = SlotTable(
        {slot: LowRankFactors.of(factors(slot), arena, is_half=is_half) for slot in CHANGES}
    )
    batch = SegmentTable()
    batch.fill(
        [
            (slot, torch.tensor(tokens), torch.full((len(tokens), 1), 0.5 + slot))
            for slot, tokens in segments
        ]
    )
    result = out.clone()
    one = call(
        "adapt",
        4 * table.max_rank * len(x) * table.num_slots,
        out=result,
        x=x,
        by_slot=ctypes.addressof(table.records),
        batch=ctypes.addressof(batch.record),
        num_slots=table.num_slots,
        max_rank=table.max_rank,
        out_stride=result.stride(0),
        x_stride=x.stride(0),
        columns=COLUMNS,
        outputs=OUTPUTS,
    )
    run([one], options, num_threads)
    return result


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


def test_no_segments_change_nothing(options):
    x, out = noise(TOKENS, COLUMNS, seed=9), noise(TOKENS, OUTPUTS, seed=8)

    assert torch.equal(adapt(out, x, [], options), out)


def test_factors_that_are_too_large_for_halves_stay_floats():
    a, b = noise(4, COLUMNS), noise(OUTPUTS, 4)
    kept = LowRankFactors.of([(a, b, 0)], Arena(), is_half=True)
    large = LowRankFactors.of([(a, b * 1e5, 0)], Arena(), is_half=True)

    assert (kept.a.dtype, large.a.dtype) == (torch.float16, torch.float32)
    assert torch.equal(large.a[:, :COLUMNS], a)
