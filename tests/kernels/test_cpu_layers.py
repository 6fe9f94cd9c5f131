"""The small operations of the CPU kernels, against their definitions in float64 and in torch."""

from __future__ import annotations

import pytest
import torch

from cpu_kernels import call, count, library, run, variants
from octavo_kernels.cpu import calls as mirrored
from octavo_kernels.cpu.library import Call, Program
from octavo_kernels.cpu.toolchain import BuildOptions
from octavo_kernels.reference import activation, norm, rotary

EPS = 1e-5
#: on both sides of a vector, of four, of a piece of columns, and of two
WIDTHS = [1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 576, 1023, 1025, 1536, 2049, 8192]
#: what a float64 result rounded at each step in float32 may differ by
CLOSE = {"rtol": 2e-6, "atol": 1e-30}


@pytest.fixture(params=["native", "haswell"])
def options(request):
    """Each variant of the kernels."""
    if request.param not in variants():
        pytest.skip("this machine has AVX2 alone, which is the native variant")
    return BuildOptions(architecture=request.param)


def seeded(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def guarded(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of sevens to write to, and the numbers right behind it."""
    size = torch.Size(shape).numel()
    memory = torch.full((size + 64,), 7.0)
    return memory[:size].view(shape), memory[size:]


# ----------------------------------------------------------------------------------- norms


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x, weight = x.double(), weight.double()
    return (x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight).float()


def rms_norm(out, x, weight, *, heads=1, num_rows=None):
    """Of x [rows, stride], the first heads * width of each row."""
    return call(
        "rms_norm",
        out=out,
        x=x,
        weight=weight,
        rows=count(x.shape[0] if num_rows is None else num_rows),
        out_stride=out.stride(0),
        x_stride=x.stride(0),
        heads=heads,
        width=weight.shape[0],
        eps=EPS,
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm_is_its_definition(options, width):
    x, weight = seeded(5, width, scale=3.0), seeded(width, seed=1)
    out, behind = guarded(5, width)
    run([rms_norm(out, x, weight)], options)

    torch.testing.assert_close(out, rms(x, weight), **CLOSE)
    assert (behind == 7).all()


def test_rms_norm_of_heads_inside_wider_rows_and_in_place(options):
    heads, width = 5, 20
    buffer = seeded(6, 200)
    before, weight = buffer.clone(), seeded(width, seed=1)
    x = buffer[:, 30:]
    run([rms_norm(x, x, weight, heads=heads)], options)

    own = slice(30, 30 + heads * width)
    expected = rms(before[:, own].reshape(6, heads, width), weight)
    torch.testing.assert_close(buffer[:, own].reshape(6, heads, width), expected, **CLOSE)
    buffer[:, own] = before[:, own]
    assert buffer.equal(before)


def test_rms_norm_agrees_with_the_reference(options):
    x, weight = seeded(33, 576), seeded(576, seed=1)
    out, expected = torch.empty_like(x), torch.empty_like(x)
    run([rms_norm(out, x, weight)], options)
    norm.rms_norm(x, weight, EPS, expected)

    torch.testing.assert_close(out, expected, **CLOSE)


def test_counts_are_read_when_a_program_runs(options):
    x, weight = seeded(4, 64), seeded(64, seed=1)
    out = torch.zeros(4, 64)
    rows = count(2)
    arguments = mirrored.RmsNorm(
        *(one.data_ptr() for one in (out, x, weight, rows)), 64, 64, 1, 64, EPS
    )
    program = Program(library(options), [Call("rms_norm", arguments, (out, x, weight, rows))])
    for number in (0, 1, 4, 2):
        out.zero_()
        rows[0] = number
        program.run(2)
        torch.testing.assert_close(out[:number], rms(x[:number], weight), **CLOSE)
        assert (out[number:] == 0).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_add_rms_norm_is_its_definition(options, width):
    residual, delta, weight = seeded(3, width), seeded(3, width, seed=1), seeded(width, seed=2)
    total = residual + delta
    out, behind = guarded(3, width)
    fields = {"residual": residual, "delta": delta, "weight": weight, "rows": count(3)}
    run([call("add_rms_norm", out=out, width=width, eps=EPS, **fields)], options)

    assert residual.equal(total)
    torch.testing.assert_close(out, rms(total, weight), **CLOSE)
    assert (behind == 7).all()


# ---------------------------------------------------------------------------------- rotary


@pytest.mark.parametrize(("head_dim", "half"), [(64, 32), (80, 40), (20, 7), (128, 16), (2, 1)])
def test_rotary_agrees_with_the_reference(options, head_dim, half):
    table = rotary.rope_table(rotary.Rope(2 * half, 10000.0), 300)
    positions = torch.tensor([299, 0, 1, 17, 17])
    buffer = seeded(5, 3 * head_dim + 9)
    expected = buffer.clone()
    rotary.rotate(expected[:, 9:].view(5, 3, head_dim), table[positions])
    x = buffer[:, 9:]
    fields = {"x": x, "positions": positions, "table": table, "rows": count(5)}
    strides = {"row_stride": buffer.stride(0), "head_stride": head_dim}
    run([call("rotary", heads=3, half=half, **fields, **strides)], options)

    torch.testing.assert_close(buffer, expected, rtol=1e-6, atol=3e-7)


# ------------------------------------------------------------------------------ activations


def gated(out, gate_up, kind):
    width = out.shape[1]
    rows = count(out.shape[0])
    return call("gated_activation", out=out, gate_up=gate_up, rows=rows, width=width, kind=kind)


def exact_gate(gate: torch.Tensor, kind: int) -> torch.Tensor:
    """In float64, without the loss of 1 + tanh(z) where tanh(z) is near -1."""
    x = gate.double()
    if kind == 0:
        return x * x.sigmoid()
    return x * (2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)).sigmoid()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [0, 1])
def test_gated_activations_are_their_definitions(options, width, kind):
    gate_up = seeded(3, 2 * width, scale=3.0)
    out, behind = guarded(3, width)
    run([gated(out, gate_up, kind)], options)

    expected = (exact_gate(gate_up[:, :width], kind) * gate_up[:, width:].double()).float()
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-8)
    assert (behind == 7).all()


@pytest.mark.parametrize(("kind", "name"), [(0, "silu_mul"), (1, "gelu_mul")])
def test_gated_activations_agree_with_the_reference(options, kind, name):
    gate_up = seeded(17, 2 * 1536)
    out, expected = torch.empty(17, 1536), torch.empty(17, 1536)
    run([gated(out, gate_up, kind)], options)
    getattr(activation, name)(gate_up, expected)

    torch.testing.assert_close(out, expected, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("kind", [0, 1])
def test_gates_far_from_zero(options, kind):
    gate = torch.tensor([-1e30, -1000.0, -88.0, -20.0, -0.0, 0.0, 1e-30, 20.0, 1000.0, 1e30])
    out = torch.empty(1, gate.numel())
    run([gated(out, torch.stack((gate, torch.ones_like(gate)))[None].flatten(1), kind)], options)

    torch.testing.assert_close(out[0], exact_gate(gate, kind).float(), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("kind", [0, 1])
def test_what_is_no_number_stays_none(options, kind):
    gate_up = torch.ones(3, 40)
    gate_up[0, 5] = torch.nan
    gate_up[1, 25] = torch.nan
    out = torch.empty(3, 20)
    run([gated(out, gate_up, kind)], options)

    assert out.isnan().nonzero().tolist() == [[0, 5], [1, 5]]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_soft_cap_is_its_definition(options, width):
    x = seeded(3, width, scale=20.0)
    x[0, 0], x[1, 0], x[2, 0] = 1e-3, 1e6, torch.nan
    expected = (30.0 * (x.double() / 30.0).tanh()).float()
    run([call("elementwise", x=x, rows=count(3), width=width, kind=1, number=30.0)], options)

    torch.testing.assert_close(x, expected, equal_nan=True, **CLOSE)


def test_multiplying_rows(options):
    x = seeded(3, 100)
    expected = x * 0.25
    expected[2] = x[2]
    run([call("elementwise", x=x, rows=count(2), width=100, kind=0, number=0.25)], options)

    assert x.equal(expected)


@pytest.mark.parametrize("width", [1, 63, 576, 5000])
def test_gathering_rows(options, width):
    x = seeded(9, width)
    index = torch.tensor([8, 0, 0, 3])
    out, behind = guarded(4, width)
    run([call("gather_rows", out=out, x=x, index=index, rows=count(4), width=width)], options)

    assert out.equal(x[index])
    assert (behind == 7).all()


# --------------------------------------------------------- the same bits, whoever is around


def all_operations(num_rows: int, width: int) -> list[torch.Tensor]:
    """Calls of every operation over the first rows of the same numbers, and where they write."""
    wide = seeded(64, 2 * width, scale=2.0)[:num_rows].clone()
    x = wide[:, :width].clone()
    weight, rows = seeded(width, seed=1), count(num_rows)
    normed, added, gates, scaled = (torch.empty(num_rows, width) for _ in range(4))
    residual, capped, turned = x.clone(), x.clone(), x.clone()
    table = rotary.rope_table(rotary.Rope(width, 10000.0), 64)
    positions = torch.arange(num_rows)
    both = {"rows": rows, "width": width}
    calls = [
        rms_norm(normed, x, weight),
        call("add_rms_norm", out=added, residual=residual, delta=x, weight=weight, eps=EPS, **both),
        call("gated_activation", out=gates, gate_up=wide, kind=0, **both),
        call("gated_activation", out=scaled, gate_up=wide, kind=1, **both),
        call("elementwise", x=capped, kind=1, number=2.0, **both),
        call(
            "rotary",
            x=turned,
            positions=positions,
            table=table,
            rows=rows,
            row_stride=width,
            head_stride=width,
            heads=1,
            half=width // 2,
        ),
    ]
    return calls, [normed, added, residual, gates, scaled, capped, turned]


@pytest.mark.parametrize("width", [576, 1030, 4100])
def test_a_row_has_the_same_bits_alone_and_among_others(options, width):
    calls, expected = all_operations(64, width)
    run(calls, options, num_threads=1)
    for num_rows in (1, 2, 3, 17, 64):
        for num_threads in (1, 2, 5):
            calls, out = all_operations(num_rows, width)
            run(calls, options, num_threads)
            for one, other in zip(out, expected, strict=True):
                assert one.equal(other[:num_rows])
