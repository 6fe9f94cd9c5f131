"""Low-rank changes against the merged weight in float64."""

from __future__ import annotations

import pytest
import torch

from octavo_kernels.reference.lora import add_low_rank, stack_low_rank

CAP, INS, OUTS = 12, 24, 40


def noise(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator)


#: (a, b, first output) of changes to one matrix of 40 outputs: of one rank, or several
CHANGES = {
    "whole": [(noise(4, INS, seed=1), noise(OUTS, 4, seed=2), 0)],
    "one of three": [(noise(4, INS, seed=3), noise(8, 4, seed=4), 24)],
    "all of three": [
        (noise(4, INS, seed=5), noise(24, 4, seed=6), 0),
        (noise(1, INS, seed=7), noise(8, 1, seed=8), 24),
        (noise(9, INS, seed=9), noise(8, 9, seed=10), 32),
    ],
}
ROWS = {
    "one": slice(3, 4),
    "some": slice(2, 9),
    "all": slice(0, CAP),
    "scattered": torch.tensor([0, 3, 4, 11]),
}


def dense(changes):
    weight = torch.zeros(OUTS, INS, dtype=torch.float64)
    for a, b, first in changes:
        weight[first : first + len(b)] += b.double() @ a.double()
    return weight


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_rows_change_as_by_the_merged_weight_and_others_keep_their_bits(changes, rows):
    x, out = noise(CAP, INS, seed=20), noise(CAP, OUTS, seed=21)
    scales = noise(len(torch.arange(CAP)[rows]), 1, seed=22)
    expected = out.double()
    expected[rows] += scales.double() * (x[rows].double() @ dense(changes).T)
    before = out.clone()

    add_low_rank(out, x, stack_low_rank(changes, torch.float32), rows, scales)

    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-4)
    untouched = torch.ones(CAP, dtype=torch.bool)
    untouched[rows] = False
    assert torch.equal(out[untouched], before[untouched])
    changed_outs = torch.zeros(OUTS, dtype=torch.bool)
    for _, b, first in changes:
        changed_outs[first : first + len(b)] = True
    assert torch.equal(out[:, ~changed_outs], before[:, ~changed_outs])


def test_outputs_may_lie_with_gaps():
    # queries, keys and values are views of one buffer
    wide, x = torch.zeros(CAP, 2 * OUTS), noise(CAP, INS)
    stack = stack_low_rank(CHANGES["all of three"], torch.float32)
    add_low_rank(wide[:, OUTS:], x, stack, slice(0, CAP), torch.ones(CAP, 1))
    assert (wide[:, :OUTS] == 0).all()
    expected = x.double() @ dense(CHANGES["all of three"]).T
    torch.testing.assert_close(wide[:, OUTS:].double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("rows", [slice(0, 1), torch.tensor([0])], ids=["slice", "index"])
def test_a_float16_stack_computes_in_float16(rows):
    x, out = noise(1, INS).half(), torch.zeros(1, OUTS, dtype=torch.float16)
    stack = stack_low_rank(CHANGES["whole"], torch.float16)
    add_low_rank(out, x, stack, rows, torch.ones(1, 1, dtype=torch.float16))
    expected = x.double() @ dense(CHANGES["whole"]).T
    torch.testing.assert_close(out.double(), expected, rtol=2e-2, atol=2e-2)
