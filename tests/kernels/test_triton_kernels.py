"""Triton kernels against the oracle: compiled where there is a GPU, else in the interpreter.

Without a GPU, `test_triton_processes` runs this file in a process of its own: whether kernels
are interpreted is settled when Triton is first imported.
"""

from __future__ import annotations

import math
import os

import pytest
import torch

from attention_case import AttentionCase
from octavo_kernels.reference.attention import AttentionParams
from octavo_kernels.reference.attention_plan import RaggedBatch, Workspace
from octavo_kernels.reference.kv_cache import KVCache, write_kv
from octavo_kernels.reference.rotary import Rope, rope_table
from octavo_kernels.triton import attention, layers
from octavo_kernels.triton.attention_plan import Tiles, TritonPlan
from octavo_kernels.triton.devices import device_name, is_interpreted

if not torch.cuda.is_available() and not os.environ.get("TRITON_INTERPRET"):
    pytest.skip("no GPU here; the interpreter runs these elsewhere", allow_module_level=True)

DEVICE = device_name()
#: many pieces and tiles from few positions
SMALL = Tiles(64, 16, 32)
#: many tiles from few queries as well
SMALLEST = Tiles(16, 16, 32)
#: so many programs are wanted that no program has two pieces; 1 leaves all pieces to one
MANY, ONE = 1 << 20, 1
LENGTHS, QUERIES = [1, 17, 50, 36, 22], [1, 1, 12, 4, 22]
ATOL = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
RTOL = {torch.float32: 0, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def attend(case, params, *, dtype=torch.float32, tiles=SMALL, programs=ONE, cache=None):
    """Return what the kernels make of a case, on the CPU."""
    cache = cache or case.cache(dtype)
    moved = KVCache(cache.k.to(DEVICE), cache.v.to(DEVICE))
    plan = TritonPlan(case.batch_on(DEVICE), programs)
    q = case.q.to(DEVICE, dtype)
    out = torch.full_like(q, math.nan)
    attention.paged_attention(out, q, moved, plan, params, tiles=tiles)
    return out.cpu()


def assert_close(actual, expected):
    torch.testing.assert_close(
        actual.double(), expected, rtol=RTOL[actual.dtype], atol=ATOL[actual.dtype]
    )


# ---------------------------------------------------------------------- attention: parity


@pytest.mark.parametrize(
    ("heads", "shape", "window", "softcap", "block_size"),
    [
        (2, (2, 64), None, None, 16),
        (9, (3, 64), 20, None, 16),
        (3, (1, 80), None, 3.0, 7),
        (4, (1, 96), 1, None, 32),
        (8, (2, 128), 33, 5.0, 16),
        (3, (1, 8), None, None, 1),
    ],
)
def test_parity_in_float32(heads, shape, window, softcap, block_size):
    kv_heads, dim = shape
    case = AttentionCase(LENGTHS, QUERIES, heads, kv_heads, dim=dim, block_size=block_size)
    params = AttentionParams(dim**-0.5, window, softcap)
    assert_close(attend(case, params), case.oracle(params))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "window", "softcap"),
    [(6, 2, 64, None, None), (4, 1, 128, 20, 5.0), (1, 1, 80, None, 2.0)],
)
def test_parity_in_float16(heads, kv_heads, dim, window, softcap):
    case = AttentionCase(LENGTHS, QUERIES, heads, kv_heads, dim=dim)
    case.round_to(torch.float16)
    params = AttentionParams(dim**-0.5, window, softcap)
    assert_close(attend(case, params, dtype=torch.float16, tiles=None), case.oracle(params))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_parity_with_default_tiles_beyond_one_piece(dtype):
    case = AttentionCase([300, 520], [6, 1], 3, 1, dim=64)
    case.round_to(dtype)
    params = AttentionParams(0.125)
    assert_close(attend(case, params, dtype=dtype, tiles=None, programs=MANY), case.oracle(params))


@pytest.mark.skipif(is_interpreted(), reason="the interpreter's products of bfloat16 are wrong")
@pytest.mark.parametrize("dim", [64, 80, 96, 128])
def test_parity_in_bfloat16(dim):
    case = AttentionCase(LENGTHS, QUERIES, 9, 3, dim=dim)
    case.round_to(torch.bfloat16)
    params = AttentionParams(dim**-0.5)
    assert_close(attend(case, params, dtype=torch.bfloat16, tiles=None), case.oracle(params))


# ---------------------------------------------------------------------- attention: the same bits


@pytest.mark.parametrize(
    ("window", "softcap", "dtype"),
    [(None, None, torch.float32), (24, 3.0, torch.float32), (None, None, torch.float16)],
)
def test_one_shot_is_any_chunking_bit_for_bit(window, softcap, dtype):
    """Prefill, chunks that cut tiles and pieces, drafts and decodes: one sequence, the same bits.

    Keys and values that a chunk cannot know yet are NaN.
    """
    case = AttentionCase([70], [70], 3, 1, dim=64)
    params = AttentionParams(0.125, window, softcap)
    whole = attend(case, params, dtype=dtype, tiles=SMALLEST)
    done = 0
    for number, count in enumerate((31, 1, 6, 1, 4, 1, 26)):
        end = done + count
        cache, programs = case.cache(dtype, lengths=[end]), (ONE, MANY)[number % 2]
        out = attend(
            part_of(case, done, end),
            params,
            dtype=dtype,
            tiles=SMALLEST,
            programs=programs,
            cache=cache,
        )
        assert torch.equal(out, whole[done:end]), (done, end)
        done = end


def part_of(case, start, end):
    """Return a case of one sequence as the step sees it that computes start .. end."""
    part = AttentionCase([end], [end - start], 3, 1, dim=64)
    part.tables, part.q = case.tables, case.q[start:end]
    return part


def test_chunks_meet_beyond_the_first_default_piece():
    case = AttentionCase([266], [30], 3, 1, dim=64)
    params = AttentionParams(0.125)
    whole = attend(case, params, tiles=None)
    case.q = torch.cat((torch.zeros(236, 3, 64), case.q))
    for start, end in ((240, 258), (265, 266)):
        cache = case.cache(lengths=[end])
        out = attend(part_of(case, start, end), params, cache=cache, tiles=None, programs=MANY)
        assert torch.equal(out, whole[start - 236 : end - 236])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_neither_the_batch_nor_the_number_of_programs_changes_a_bit(dtype):
    params = AttentionParams(0.125, 30)
    case = AttentionCase(LENGTHS, QUERIES, 6, 2, dim=64)
    together = attend(case, params, dtype=dtype)
    assert torch.equal(attend(case, params, dtype=dtype, programs=MANY), together)
    for i in (2, 3):
        alone = AttentionCase([LENGTHS[i]], [QUERIES[i]], 6, 2, dim=64)
        alone.k, alone.v = [case.k[i]], [case.v[i]]
        rows = slice(int(case.starts[i]), int(case.starts[i + 1]))
        alone.q = case.q[rows]
        assert torch.equal(attend(alone, params, dtype=dtype), together[rows])


def test_permuting_physical_blocks_changes_no_bit():
    case = AttentionCase(LENGTHS, QUERIES, 3, 1, dim=64)
    params = AttentionParams(0.125, 24)
    before, tables = attend(case, params), case.tables.clone()
    case.shuffle([-(-length // 16) for length in LENGTHS])
    assert not torch.equal(case.tables, tables)
    assert torch.equal(attend(case, params), before)


def test_what_stands_in_unowned_slots_changes_no_bit():
    case = AttentionCase(LENGTHS, QUERIES, 3, 1, dim=80)
    params = AttentionParams(0.125, None, 3.0)
    clean = attend(case, params, cache=case.cache(filler=0.0))
    assert torch.equal(attend(case, params, cache=case.cache(filler=math.nan)), clean)
    assert torch.equal(attend(case, params, cache=case.cache(filler=math.inf)), clean)


def test_blocks_out_of_the_window_may_be_gone():
    case = AttentionCase([100, 64], [3, 1], 2, 1, dim=64, block_size=4)
    params = AttentionParams(0.125, 20)
    cache = case.cache()
    clean = attend(case, params, cache=cache)
    # the first query of sequence 0 stands at 97 and sees 78 and following; of sequence 1, 44
    case.tables[0, : 78 // 4] = 0
    case.tables[1, : 44 // 4] = 0
    assert torch.equal(attend(case, params, cache=cache), clean)


def test_pieces_of_a_chunk_may_be_shared_by_programs_that_have_several():
    case = AttentionCase([140], [9], 2, 1, dim=64)
    params = AttentionParams(0.125)
    alone = attend(case, params)
    assert TritonPlan(case.batch, 2).work_for(1 << 30, SMALL, 2, 1).items[:, 4:6].tolist() == [
        [0, 3],
        [3, 5],
    ]
    assert torch.equal(attend(case, params, programs=2), alone)


def test_one_sequence_of_nan_leaves_the_others_alone():
    case = AttentionCase([40, 41, 60], [1, 1, 20], 2, 1, dim=64)
    params = AttentionParams(0.125)
    clean = attend(case, params)
    case.v[1][3] = math.nan
    case.k[2][35] = math.nan
    out = attend(case, params)
    assert out[1].isnan().all()
    assert torch.equal(out[0], clean[0])


def test_strided_queries_and_outputs_and_a_workspace_that_was_used():
    case = AttentionCase([50, 20], [3, 9], 9, 3, dim=64)
    params = AttentionParams(0.125)
    expected = attend(case, params)
    n, workspace = len(case.q), Workspace()
    packed = torch.randn(n, 15, 64, device=DEVICE)
    packed[:, :9] = case.q.to(DEVICE)
    out = torch.zeros(n, 12, 64, device=DEVICE)
    cache = case.cache()
    cache = KVCache(cache.k.to(DEVICE), cache.v.to(DEVICE))
    for _ in range(2):
        plan = TritonPlan(case.batch_on(DEVICE), MANY, workspace)
        attention.paged_attention(out[:, 2:11], packed[:, :9], cache, plan, params, tiles=SMALL)
        assert torch.equal(out[:, 2:11].cpu(), expected)
        assert not out[:, :2].any()
        assert not out[:, 11:].any()
        for name in ("sums of parts", "stats of parts"):
            workspace.take(name, (1,), torch.float32, out.device).fill_(math.nan)


def test_no_sequences_are_no_work():
    batch = RaggedBatch(
        torch.tensor([0]), torch.empty(0).long(), torch.empty(0, 4).int().to(DEVICE), 16
    )
    empty = torch.empty(0, 4, 64, device=DEVICE)
    cache = KVCache(*torch.zeros(2, 2, 16, 2, 64, device=DEVICE))
    attention.paged_attention(empty, empty, cache, TritonPlan(batch), AttentionParams(1.0))
    attention.write_kv(cache, empty[:, :2], empty[:, 2:], torch.empty(0).long().to(DEVICE))
    assert not cache.k.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_write_changes_the_given_slots_and_nothing_else(dtype):
    expected = KVCache.empty((4, 4, 3, 80), dtype, "cpu")
    cache = KVCache(expected.k.to(DEVICE).clone(), expected.v.to(DEVICE).clone())
    packed = torch.randn(3, 9, 80).to(DEVICE, dtype)
    slots = torch.tensor([13, 2, 7])
    attention.write_kv(cache, packed[:, :3], packed[:, 4:7], slots.to(DEVICE))
    write_kv(expected, packed[:, :3].cpu(), packed[:, 4:7].cpu(), slots)
    assert torch.equal(cache.k.cpu(), expected.k)
    assert torch.equal(cache.v.cpu(), expected.v)


# ---------------------------------------------------------------------- layers


def seeded(*shape, dtype=torch.float32, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype).to(DEVICE)


def normed(x, weight, eps=1e-5):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(3, 576), (2, 3, 80)])
def test_rms_norm_in_place_and_on_strided_views(shape, dtype):
    buffer = seeded(*shape[:-1], shape[-1] + 16, dtype=dtype) * 3
    weight = 1 + seeded(shape[-1], seed=1) / 4
    x, outside = buffer[..., 8:-8], buffer[..., :8].clone()
    expected = normed(x, weight)
    layers.rms_norm(x, weight, 1e-5, x)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(x.double(), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(buffer[..., :8], outside)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_add_rms_norm_adds_into_the_residual_first(dtype):
    residual, delta = seeded(3, 72, dtype=dtype), seeded(3, 72, dtype=dtype, seed=1)
    weight, out = seeded(72, seed=2), torch.empty(3, 72, dtype=dtype, device=DEVICE)
    expected = residual + delta
    layers.add_rms_norm(residual, delta, weight, 1e-5, out)
    assert torch.equal(residual, expected)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(
        out.double(), normed(expected, weight), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gated_activations(dtype):
    gate_up = seeded(2, 2 * 1500, dtype=dtype) * 3
    gate_up[0, :2] = torch.tensor([-200.0, 200.0])  # where a naive sigmoid overflows
    gate, up = gate_up.double().chunk(2, -1)
    out = torch.empty(2, 1500, dtype=dtype, device=DEVICE)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-3
    layers.silu_mul(gate_up, out)
    expected = gate * gate.sigmoid() * up
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    layers.gelu_mul(gate_up, out)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    expected = gate * 0.5 * (1 + torch.tanh(inner)) * up
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("heads", "kv_heads", "partial"), [(9, 3, 1.0), (4, 1, 0.5)])
def test_rotation_turns_pairs_of_halves_by_the_angle(heads, kv_heads, partial, dtype):
    rope = Rope(64, 100.0, partial_factor=partial)
    table, positions = rope_table(rope, 32).to(DEVICE), torch.tensor([0, 31, 7]).to(DEVICE)
    buffer = seeded(3, heads + kv_heads + 2, 80, dtype=dtype)
    before = buffer.clone()
    q, k = buffer[:, :heads, 8:72], buffer[:, heads : heads + kv_heads, 8:72]
    layers.rotate(q, k, table, positions)
    half = rope.rotary_dim // 2
    turned = before[:, : heads + kv_heads, 8:72].double()
    cos, sin = (table[positions, i].double()[:, None] for i in (0, 1))
    first, second = turned[..., :half].clone(), turned[..., half : 2 * half].clone()
    turned[..., :half] = first * cos - second * sin
    turned[..., half : 2 * half] = second * cos + first * sin
    tolerance = 1e-6 if dtype == torch.float32 else 1e-3
    actual = buffer[:, : heads + kv_heads, 8:72].double()
    torch.testing.assert_close(actual, turned, rtol=tolerance, atol=tolerance)
    buffer[:, : heads + kv_heads, 8 : 8 + 2 * half] = before[
        :, : heads + kv_heads, 8 : 8 + 2 * half
    ]
    assert torch.equal(buffer, before)


def test_rows_that_are_not_contiguous_are_refused():
    with pytest.raises(ValueError, match="a row must be contiguous"):
        layers.silu_mul(seeded(8, 4).T, torch.empty(4, 4, device=DEVICE))
