"""Calls made block by block of rows: the same bits as call by call, and only where that is so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from cpu_kernels import call, count, library, run, variants
from cpu_matrices import matrix, noise
from octavo_kernels.cpu.packing import linear_bytes
from octavo_kernels.cpu.toolchain import BuildOptions

if TYPE_CHECKING:
    from octavo_kernels.cpu.library import Call

HIDDEN, WIDE = 96, 160
#: below and above what is worth blocks, with blocks that are not full
ROWS = (63, 64, 65, 200, 513)


@pytest.fixture(params=variants())
def options(request):
    return BuildOptions(architecture=request.param)


class Layer:
    """A gated MLP with its norm, over `rows` rows."""

    def __init__(self, rows: int, options: BuildOptions, *, is_exact: bool = False) -> None:
        self.options = options
        self.is_exact = is_exact
        self.rows = count(rows)
        self.residual, self.delta = noise(rows, HIDDEN), noise(rows, HIDDEN) * 3
        self.normed = torch.zeros(rows, HIDDEN)
        self.gate_up = torch.zeros(rows, 2 * WIDE)
        self.gated = torch.zeros(rows, WIDE)
        self.out = torch.zeros(rows, HIDDEN)

    def linear(
        self, out: torch.Tensor, x: torch.Tensor, block_type: str, *, is_laid_out: bool = False
    ) -> Call:
        weight = matrix(block_type, out.shape[1], x.shape[1], self.options).packed
        return call(
            "linear",
            linear_bytes(library(self.options), len(x), x.shape[1]),
            out=out,
            x=x,
            weight=weight,
            bias=None,
            rows=self.rows,
            out_stride=out.stride(0),
            x_stride=x.stride(0),
            columns=x.shape[1],
            outputs=out.shape[1],
            format=weight.format,
            is_exact=self.is_exact,
            is_laid_out=is_laid_out,
        )

    def norm(self) -> Call:
        return call(
            "add_rms_norm",
            out=self.normed,
            residual=self.residual,
            delta=self.delta,
            weight=torch.ones(HIDDEN),
            rows=self.rows,
            width=HIDDEN,
            eps=1e-5,
        )

    def activation(self) -> Call:
        return call(
            "gated_activation",
            out=self.gated,
            gate_up=self.gate_up,
            rows=self.rows,
            width=WIDE,
            kind=0,
        )

    def calls(self) -> list[Call]:
        gate, up = self.gate_up[:, :WIDE], self.gate_up[:, WIDE:]
        return [
            self.norm(),
            self.linear(gate, self.normed, "Q4_1"),
            self.linear(up, self.normed, "Q8_0", is_laid_out=True),
            self.activation(),
            self.linear(self.out, self.gated, "Q6_K" if WIDE % 256 == 0 else "Q5_0"),
        ]


@pytest.mark.parametrize("is_exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("rows", ROWS)
def test_blocks_of_rows_give_the_bits_of_single_calls(options, rows, is_exact):
    joined, single = (Layer(rows, options, is_exact=is_exact) for _ in range(2))
    run(joined.calls(), options)
    norm, gate, up, activation, down = single.calls()
    for calls in ([norm], [gate, up], [activation], [down]):
        run(calls, options, num_threads=1)

    for name in ("residual", "normed", "gate_up", "gated", "out"):
        assert torch.equal(getattr(joined, name), getattr(single, name)), name
    assert joined.out.isfinite().all()
    assert joined.out.abs().min() > 0


def test_what_takes_over_the_laid_out_rows_stays_with_the_call_before(options):
    """The second call cannot be in a run with the first: its rows meet others of the first."""
    layer = Layer(100, options)
    memory = torch.zeros(200 * WIDE)
    gate, up = (
        memory[: 100 * WIDE].view(100, WIDE),
        memory[50 * WIDE :][: 100 * WIDE].view(100, WIDE),
    )
    layer.normed = noise(100, HIDDEN)
    run(
        [
            layer.linear(gate, layer.normed, "Q4_1"),
            layer.linear(up, layer.normed, "Q8_0", is_laid_out=True),
        ],
        options,
    )
    first, second = torch.zeros(100, WIDE), torch.zeros(100, WIDE)
    run([layer.linear(first, layer.normed, "Q4_1")], options)
    run([layer.linear(second, layer.normed, "Q8_0")], options)

    assert torch.equal(up, second)
    assert torch.equal(gate[:50], first[:50])


def test_rows_that_meet_other_rows_are_not_computed_in_blocks(options):
    """A buffer that is used again with another width: its rows are parts of others then."""
    rows = 200
    layer, memory = Layer(rows, options), torch.zeros(rows * 2 * WIDE)
    narrow = memory[: rows * HIDDEN].view(rows, HIDDEN)
    narrow.copy_(noise(rows, HIDDEN))
    layer.gate_up = memory.view(rows, 2 * WIDE)
    x = narrow.clone()
    normed = layer.normed
    norm = call(
        "rms_norm",
        out=normed,
        x=narrow,
        weight=torch.ones(HIDDEN),
        rows=layer.rows,
        out_stride=HIDDEN,
        x_stride=HIDDEN,
        heads=1,
        width=HIDDEN,
        eps=1e-5,
    )
    run([norm, layer.linear(layer.gate_up, normed, "Q4_1"), layer.activation()], options)

    wanted = x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
    torch.testing.assert_close(normed, wanted)
    again = Layer(rows, options)
    again.normed.copy_(normed)
    run([again.linear(again.gate_up, again.normed, "Q4_1")], options)
    run([again.activation()], options)
    assert torch.equal(layer.gated, again.gated)
