"""Norms, activations and rotary against definitions in float64, and transformers' rope tables."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

from octavo_kernels.reference.activation import gelu_mul, silu_mul
from octavo_kernels.reference.norm import add_rms_norm, rms_norm
from octavo_kernels.reference.rotary import Rope, inverse_frequencies, rope_table, rotate

EPS = 1e-5


def _seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x, weight = x.double(), weight.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


@pytest.mark.parametrize("shape", [(1, 8), (5, 576), (3, 4, 64)])
def test_rms_norm_is_its_definition(shape):
    x = torch.randn(shape, generator=_seeded()) * 3
    weight = torch.randn(shape[-1], generator=_seeded(1))
    out = torch.empty_like(x)
    rms_norm(x, weight, EPS, out)
    torch.testing.assert_close(out.double(), _rms(x, weight), rtol=1e-6, atol=1e-6)


def test_rms_norm_in_place_and_on_strided_views():
    buffer = torch.randn(6, 3, 80, generator=_seeded())
    weight = torch.randn(64, generator=_seeded(1))
    x = buffer[:, :, 8:72]
    expected, outside = _rms(x, weight), buffer[:, :, :8].clone()
    rms_norm(x, weight, EPS, x)
    torch.testing.assert_close(x.double(), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(buffer[:, :, :8], outside)


def test_rms_norm_of_zeros_and_of_large_numbers_is_finite():
    x = torch.stack((torch.zeros(16), torch.full((16,), 1e15)))
    out = torch.empty_like(x)
    rms_norm(x, torch.ones(16), EPS, out)
    torch.testing.assert_close(out, torch.stack((torch.zeros(16), torch.ones(16))))


def test_rms_norm_in_bfloat16_rounds_where_transformers_does():
    x = torch.randn(4, 64, generator=_seeded()).bfloat16()
    norm = LlamaRMSNorm(64, eps=EPS).bfloat16()
    norm.weight.data = torch.randn(64, generator=_seeded(1)).bfloat16()
    out = torch.empty_like(x)
    rms_norm(x, norm.weight.data, EPS, out)
    assert torch.equal(out, norm(x))


def test_add_rms_norm_adds_into_the_residual_first():
    residual, delta = torch.randn(2, 4, 32, generator=_seeded())
    weight = torch.randn(32, generator=_seeded(1))
    expected = residual + delta
    out = torch.empty_like(residual)
    add_rms_norm(residual, delta, weight, EPS, out)
    assert torch.equal(residual, expected)
    torch.testing.assert_close(out.double(), _rms(expected, weight), rtol=1e-6, atol=1e-6)


def test_gated_activations_take_the_gate_first():
    gate_up = torch.randn(5, 2 * 12, generator=_seeded()) * 2
    gate, up = gate_up.double().chunk(2, -1)
    out = torch.empty(5, 12)
    silu_mul(gate_up, out)
    torch.testing.assert_close(out.double(), gate * gate.sigmoid() * up, rtol=1e-6, atol=1e-6)
    gelu_mul(gate_up, out, "none")
    exact = gate * 0.5 * (1 + torch.erf(gate / math.sqrt(2))) * up
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)
    gelu_mul(gate_up, out)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    torch.testing.assert_close(
        out.double(), gate * 0.5 * (1 + torch.tanh(inner)) * up, rtol=1e-5, atol=1e-6
    )


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": YARN,
    "yarn-betas": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    "yarn-attention-factor": {**YARN, "attention_factor": 0.75},
    "yarn-mscale": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
}


@pytest.mark.parametrize("partial", [1.0, 0.5])
@pytest.mark.parametrize("name", SCALINGS)
def test_rope_tables_have_the_bits_of_transformers(name, partial):
    scaling = SCALINGS[name]
    # transformers' Llama ignores the partial factor in this one type: give it the smaller head
    head_dim = 32 if name == "default" and partial != 1 else 64
    config = LlamaConfig(
        head_dim=head_dim,
        hidden_size=128,
        num_attention_heads=2,
        max_position_embeddings=256,
        rope_parameters={**scaling, "rope_theta": 5000.0, "partial_rotary_factor": partial},
    )
    rope = Rope(64, 5000.0, scaling, partial, original_max_positions=256)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 1), torch.arange(256)[None])
    table = rope_table(rope, 256)
    half = rope.rotary_dim // 2
    assert table.shape == (256, 2, half)
    torch.testing.assert_close(table[:, 0], cos[0, :, :half], rtol=0, atol=2e-7)
    torch.testing.assert_close(table[:, 1], sin[0, :, :half], rtol=0, atol=2e-7)


def test_dynamic_scaling_gives_each_position_the_base_of_its_own_length():
    rope = Rope(64, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, original_max_positions=128)
    frequencies, _ = inverse_frequencies(rope, 256)
    for position in (0, 127, 128, 255):
        length = max(position + 1, 128)
        base = 10000.0 * (2.0 * length / 128 - 1) ** (64 / 62)
        expected = 1 / base ** (torch.arange(0, 64, 2).double() / 64)
        torch.testing.assert_close(frequencies[position].double(), expected, rtol=1e-6, atol=0)


def test_frequency_factors_divide_one_by_one():
    factors = tuple(1.0 + i / 4 for i in range(8))
    plain, _ = inverse_frequencies(Rope(16, 10000.0), 32)
    scaled, _ = inverse_frequencies(Rope(16, 10000.0, frequency_factors=factors), 32)
    assert torch.equal(scaled, plain / torch.tensor(factors))


@pytest.mark.parametrize(
    ("rope", "text"),
    [
        (Rope(16, 1e4, {"rope_type": "spiral"}), "unknown rope type 'spiral'"),
        (Rope(16, 1e4, {"type": "linear"}), "rope type 'linear' needs 'factor'"),
        (Rope(16, 1e4, frequency_factors=(1.0, 2.0)), "2 frequency factors for 8 frequencies"),
    ],
)
def test_bad_rope_configs_are_refused(rope, text):
    with pytest.raises(ValueError, match=text):
        rope_table(rope, 8)


@pytest.mark.parametrize("partial", [1.0, 0.5])
def test_rotation_turns_pairs_of_halves_by_the_angle(partial):
    rope = Rope(16, 100.0, partial_factor=partial)
    positions = torch.tensor([0, 3, 17])
    buffer = torch.randn(3, 5, 20, generator=_seeded())
    x = buffer[:, 1:4, 2:18]  # a strided view
    before, whole = x.double().clone(), buffer.clone()
    rotate(x, rope_table(rope, 32)[positions])
    half = rope.rotary_dim // 2
    frequencies, _ = inverse_frequencies(rope, 32)
    for i, position in enumerate(positions.tolist()):
        turn = torch.polar(torch.ones(half).double(), position * frequencies.double())
        pairs = torch.complex(before[i, :, :half], before[i, :, half : 2 * half]) * turn
        torch.testing.assert_close(x[i, :, :half].double(), pairs.real, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            x[i, :, half : 2 * half].double(), pairs.imag, rtol=1e-5, atol=1e-5
        )
    assert torch.equal(x[:, :, 2 * half :].double(), before[:, :, 2 * half :])
    whole[:, 1:4, 2:18] = x
    assert torch.equal(buffer, whole)
