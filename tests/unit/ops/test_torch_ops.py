"""The torch op set: rows beyond the count stay as they were, weights are decoded and joined."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from octavo.errors import UnsupportedError
from octavo.interfaces.architecture import RotaryConfig
from octavo.interfaces.ops import Count
from octavo.interfaces.sampler import LogprobInputs, PenaltyRow, SamplingInputs
from octavo.interfaces.weights import BLOCK_TYPES, WeightBlocks
from octavo_kernels.reference.dequantize import dequantize
from octavo_plugins.ops.torch_ops import TorchOps

CAP = 6
CANARY = 777.0


@pytest.fixture
def ops():
    return TorchOps()


def blocks_of(tensor, name="w"):
    array = tensor.contiguous().numpy()
    data = array.reshape(-1, array.shape[-1]).view(np.uint8)
    return WeightBlocks(name, "F32", tuple(tensor.shape), data, "memory")


def canaries(*shape):
    return torch.full((CAP, *shape), CANARY)


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def operations(ops):
    """Yield (name, out buffer, call): each call takes a count and writes its rows of `out`."""
    x, wide = random(CAP, 8), random(CAP, 24)
    weight, bias, norm = random(5, 8), random(5), random(8)
    embedding, index = random(9, 8), torch.tensor([3, 1, 1, 5, 0, 2])
    out = canaries(8)
    yield "embedding", out, lambda n: ops.embedding(out, index, embedding, n)
    yield "rms_norm", out, lambda n: ops.rms_norm(out, x, norm, 1e-5, n)
    yield "gather_rows", out, lambda n: ops.gather_rows(out, x, index, n)
    packed, outs = ops.pack_linear([blocks_of(weight)]), canaries(5)
    yield "linear", outs, lambda n: ops.linear(outs, x, packed, None, n)
    yield "linear-bias", outs, lambda n: ops.linear(outs, x, packed, bias, n)
    half = canaries(12)
    yield "silu_mul", half, lambda n: ops.silu_mul(half, wide, n)
    yield "gelu_mul", half, lambda n: ops.gelu_mul(half, wide, n)
    yield "scale", half, lambda n: ops.scale(half, 0.3, n)
    yield "soft_cap", half, lambda n: ops.soft_cap(half, 20.0, n)
    residual = canaries(8)
    yield "add_rms_norm", residual, lambda n: ops.add_rms_norm(out, residual, x, norm, 1e-5, n)
    heads = canaries(3, 4)
    table = ops.rotary_table(RotaryConfig(4, 100.0), 16)
    positions = torch.arange(CAP) + 5
    yield "rotary", heads, lambda n: ops.rotary(heads, random(CAP, 1, 4), positions, table, n)


@pytest.mark.parametrize("count", [1, 4, CAP])
def test_o1_rows_beyond_the_count_stay_as_they_were(ops, count):
    for name, out, call in operations(ops):
        out.fill_(CANARY)
        call(Count(count))
        assert (out[count:] == CANARY).all(), name
        assert (out[:count] != CANARY).any(), name


def test_o3_a_row_depends_on_its_own_input_row_alone(ops):
    for name, out, call in operations(ops):
        out.fill_(CANARY)
        call(Count(CAP))
        whole = out.clone()
        for count in (1, 2, 5):
            out.fill_(CANARY)
            call(Count(count))
            torch.testing.assert_close(out[:count], whole[:count], rtol=1e-6, atol=1e-6, msg=name)


def test_linear_joins_its_weights_along_out(ops):
    parts, bias = [random(3, 8), random(5, 8), random(2, 8)], random(10)
    packed = ops.pack_linear([blocks_of(part) for part in parts])
    x, out = random(CAP, 8), canaries(10)
    ops.linear(out, x, packed, bias, Count(CAP))
    torch.testing.assert_close(out, functional.linear(x, torch.cat(parts), bias))


def test_an_embedding_is_also_the_weight_of_a_linear(ops):
    table = random(11, 8)
    packed = ops.pack_embedding(blocks_of(table))
    out, ids = canaries(8), torch.tensor([10, 0, 3, 3, 1, 2])
    ops.embedding(out, ids, packed, Count(CAP))
    assert torch.equal(out, table[ids])
    logits = canaries(11)
    ops.linear(logits, out, packed, None, Count(CAP))
    torch.testing.assert_close(logits, out @ table.T)


def test_vectors_are_joined_and_float32(ops):
    parts = [random(3), random(4)]
    packed = ops.pack_vector([blocks_of(part) for part in parts])
    assert packed.dtype == torch.float32
    assert torch.equal(packed, torch.cat(parts))


@pytest.mark.parametrize("block_type", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_quantised_weights_are_decoded_from_memory_that_may_not_be_written(ops, block_type):
    layout = BLOCK_TYPES[block_type]
    data = np.random.default_rng(0).integers(0, 60, (4, layout.row_bytes(64)), dtype=np.uint8)
    data.setflags(write=False)  # as a mapped file is
    blocks = WeightBlocks("w", block_type, (4, 64), data, "memory")
    expected = dequantize(block_type, torch.from_numpy(data.copy()), 64)
    x, out = random(CAP, 64), canaries(4)
    ops.linear(out, x, ops.pack_linear([blocks]), None, Count(CAP))
    torch.testing.assert_close(out, x @ expected.T, rtol=1e-4, atol=1e-4)
    assert torch.equal(ops.pack_embedding(blocks), expected)


def test_o4_an_unknown_block_type_is_refused_by_name(ops):
    blocks = WeightBlocks("model.w", "IQ9", (1, 8), np.zeros((1, 8), np.uint8), "a.gguf")
    with pytest.raises(UnsupportedError) as caught:
        ops.pack_linear([blocks])
    assert str(caught.value).startswith(
        "the torch op set cannot multiply weights of block type 'IQ9'\n"
        "  tensor: model.w (a.gguf)\n"
        "  block types it takes: BF16, F16, F32, IQ4_NL, Q4_0,"
    )


def test_an_unknown_rope_type_is_refused(ops):
    config = RotaryConfig(8, 1e4, {"rope_type": "spiral"})
    with pytest.raises(UnsupportedError, match="unknown rope type 'spiral'; known are default"):
        ops.rotary_table(config, 8)


@pytest.mark.parametrize("is_joined", [True, False])
def test_rotary_of_views_of_one_buffer_and_of_separate_ones(ops, is_joined):
    packed = random(CAP, 7, 8)
    if is_joined:
        q, k = packed[:, :4], packed[:, 4:6]
    else:
        q, k = packed[:, :4].clone(), packed[:, 4:6].clone()
    expected_q, expected_k, rest = q.clone(), k.clone(), packed[:, 6].clone()
    table = ops.rotary_table(RotaryConfig(8, 100.0), 64)
    positions = torch.tensor([9, 0, 63, 5, 5, 1])
    ops.rotary(q, k, positions, table, Count(5))
    frequencies = 100.0 ** -(torch.arange(0, 8, 2) / 8)
    angles = (positions[:, None] * frequencies)[:, None]
    for got, x in ((q, expected_q), (k, expected_k)):
        low, high = x[:5].chunk(2, -1)
        cos, sin = angles[:5].cos(), angles[:5].sin()
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
        torch.testing.assert_close(got[:5], turned, rtol=1e-5, atol=1e-5)
        assert torch.equal(got[5:], x[5:])
    assert torch.equal(packed[:, 6], rest)


def test_rotary_sees_positions_that_changed_in_their_buffer(ops):
    table, positions = ops.rotary_table(RotaryConfig(4, 100.0), 64), torch.zeros(1).long()
    results = []
    for position in (3, 8, 3):
        positions.numpy()[0] = position  # behind torch's back, as the executor fills it
        q = torch.ones(1, 1, 4)
        ops.rotary(q, torch.ones(1, 1, 4), positions, table, Count(1))
        results.append(q)
    assert torch.equal(results[0], results[2])
    assert not torch.equal(results[0], results[1])


def sampling_inputs(rows, **changes):
    values = {
        "temperature": np.zeros(rows, np.float32),
        "top_k": np.zeros(rows, np.int32),
        "top_p": np.ones(rows),
        "min_p": np.zeros(rows),
        "uniforms": np.full(rows, 0.5),
    }
    return SamplingInputs(**{**values, **changes})


def test_edits_run_before_the_draw_in_the_documented_order(ops):
    def ids(*values):
        return np.array(values, dtype=np.int64)

    penalty = PenaltyRow(1, ids(2, 5), np.array([3, 0], np.int32), 2.0, 0.5, 0.25)
    logits = torch.zeros(4, 8)
    logits[1, [2, 5]] = torch.tensor([4.0, -1.0])
    inputs = sampling_inputs(
        4,
        allowed=[(0, ids(3, 4))],
        bias=[(0, ids(4, 7), np.array([1, 9], np.float32)), (1, ids(2), np.ones(1, np.float32))],
        penalties=[penalty],
        banned=[(3, ids(0, 1))],
    )
    outputs = ops.sample(logits, inputs)
    # row 0: 7 is not allowed, whatever its bias; row 3: 0 and 1 are banned
    assert outputs.token_ids.tolist() == [4, 2, 0, 2]
    assert not outputs.is_bad.any()
    assert logits[1, 2] == (4 + 1) / 2 - 3 * 0.5 - 0.25
    assert logits[1, 5] == -2.0
    assert not logits[2].any()


def test_bad_rows_are_reported(ops):
    logits = torch.randn(3, 100)
    logits[1, 5] = math.nan
    outputs = ops.sample(logits, sampling_inputs(3, temperature=np.ones(3, np.float32)))
    assert outputs.is_bad.tolist() == [False, True, False]
    assert outputs.token_ids[1] == 0


def test_logprobs_fill_the_interface(ops):
    logits = random(3, 50)
    inputs = LogprobInputs(np.array([2, 0]), np.array([4, 7]), np.array([2, 0], np.int32))
    outputs = ops.logprobs(logits, inputs)
    expected = torch.log_softmax(logits, -1)
    np.testing.assert_allclose(outputs.chosen, [expected[2, 4], expected[0, 7]], atol=1e-5)
    assert outputs.top_ids[0].tolist() == expected[2].topk(2)[1].tolist()
    assert len(outputs.top_ids[1]) == len(outputs.top_logprobs[1]) == 0


def test_uniforms_are_a_function_of_each_row(ops):
    seeds = np.arange(20, dtype=np.uint64)
    zeros = np.zeros(20, dtype=np.int64)
    batch = ops.uniforms(seeds, zeros + 3, zeros, 0)
    assert len(set(batch.tolist())) == 20
    assert ops.uniforms(seeds[7:8], zeros[:1] + 3, zeros[:1], 0)[0] == batch[7]
