"""Paged attention against the oracle in float64, and what it may never read."""

from __future__ import annotations

import math

import pytest
import torch

from attention_case import AttentionCase
from octavo_kernels.reference.attention import AttentionParams, paged_attention
from octavo_kernels.reference.attention_plan import AttentionPlan, RaggedBatch, Workspace
from octavo_kernels.reference.kv_cache import KVCache, write_kv

TOLERANCE = 5e-6


class Case(AttentionCase):
    def paged(self, params, cache=None, workspace=None):
        out = torch.empty_like(self.q)
        plan = AttentionPlan(self.batch, workspace)
        paged_attention(out, self.q, cache or self.cache(), plan, params)
        return out


LENGTHS = [1, 17, 33, 200, 340, 64, 5, 90, 16]
QUERIES = [1, 1, 33, 1, 300, 7, 1, 60, 1]


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("window", [None, 1, 5, 40, 1000])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (9, 3), (8, 2), (3, 1)])
def test_parity_with_the_oracle(heads, kv_heads, window, softcap):
    case = Case(LENGTHS, QUERIES, heads, kv_heads)
    params = AttentionParams(0.3, window, softcap)
    torch.testing.assert_close(
        case.paged(params).double(), case.oracle(params), rtol=0, atol=TOLERANCE
    )


@pytest.mark.parametrize("dim", [8, 64, 80, 128])
@pytest.mark.parametrize("block_size", [1, 7, 32])
def test_parity_at_other_head_and_block_sizes(dim, block_size):
    case = Case([9, 70, 33], [1, 1, 20], 6, 2, dim=dim, block_size=block_size)
    params = AttentionParams(dim**-0.5)
    torch.testing.assert_close(
        case.paged(params).double(), case.oracle(params), rtol=0, atol=TOLERANCE
    )


def test_oracle_is_the_definition_of_attention():
    case = Case([3], [2], 2, 1, dim=4)
    expected = torch.empty(2, 2, 4, dtype=torch.float64)
    for query in range(2):
        position = 1 + query
        for head in range(2):
            scores = [
                math.exp(0.5 * float(case.q[query, head].double() @ case.k[0][key, 0].double()))
                for key in range(position + 1)
            ]
            weighted = [s * case.v[0][key, 0].double() for key, s in enumerate(scores)]
            expected[query, head] = sum(weighted) / sum(scores)
    torch.testing.assert_close(case.oracle(AttentionParams(0.5)), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_other_dtypes(dtype, softcap):
    case = Case([40, 90, 31], [1, 1, 12], 4, 2)
    params = AttentionParams(0.3, None, softcap)
    expected = case.oracle(params)
    case.q = case.q.to(dtype)
    out = case.paged(params, case.cache(dtype))
    assert out.dtype == dtype
    atol = 1e-12 if dtype == torch.float64 else 0.05
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("window", [None, 24])
def test_permuting_physical_blocks_changes_no_bit(window):
    case = Case(LENGTHS, QUERIES, 9, 3)
    params = AttentionParams(0.3, window)
    before = case.paged(params)
    tables = case.tables.clone()
    case.shuffle([-(-length // 16) for length in LENGTHS])
    assert not torch.equal(case.tables, tables)
    assert torch.equal(case.paged(params), before)


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("window", [None, 24])
def test_what_stands_in_unowned_slots_changes_no_bit(window, softcap):
    case = Case(LENGTHS, QUERIES, 4, 2)
    params = AttentionParams(0.3, window, softcap)
    clean = case.paged(params, case.cache(filler=0.0))
    assert torch.equal(case.paged(params, case.cache(filler=math.nan)), clean)
    assert torch.equal(case.paged(params, case.cache(filler=math.inf)), clean)


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_blocks_out_of_the_window_may_be_gone(softcap):
    case = Case([100, 64, 37], [3, 1, 1], 4, 2, block_size=4)
    params = AttentionParams(0.3, 20, softcap)
    cache = case.cache()  # NaN where no sequence has written, as in block 0
    clean = case.paged(params, cache)
    # the first query of sequence 0 stands at 97 and sees 78 and following; of the others, 44 and 17
    for row, first in zip(case.tables, (78, 44, 17), strict=True):
        row[: first // 4] = 0
    assert torch.equal(case.paged(params, cache), clean)


def test_one_sequence_of_nan_leaves_the_others_alone():
    case = Case([40, 41, 60, 70], [1, 1, 1, 30], 4, 2)
    params = AttentionParams(0.3)
    clean = case.paged(params)
    case.v[1][3] = math.nan
    case.v[3][5] = math.nan
    out = case.paged(params)
    assert out[1].isnan().all()
    assert torch.equal(out[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("window", [None, 9, 50])
@pytest.mark.parametrize("chunks", [[1] * 6, [2, 3, 1], [4, 2]])
def test_one_shot_is_any_chunking(chunks, window):
    length = 80
    total = sum(chunks) + 74
    assert total == length
    params = AttentionParams(0.3, window)
    case = Case([length], [6], 9, 3)
    whole = case.paged(params)
    cache = KVCache(torch.full(case.shape, math.nan), torch.full(case.shape, math.nan))
    write_kv(cache, case.k[0][:74], case.v[0][:74], case.slots(0, 0, 74))
    done = 0
    for count in chunks:
        end = 74 + done + count
        slots = case.slots(0, end - count, end)
        write_kv(cache, case.k[0][end - count : end], case.v[0][end - count : end], slots)
        q = case.q[done : done + count]
        out = torch.empty_like(q)
        batch = RaggedBatch(
            torch.tensor([0, count]), torch.tensor([end]), case.tables, case.block_size
        )
        paged_attention(out, q, cache, AttentionPlan(batch), params)
        torch.testing.assert_close(out, whole[done : done + count], rtol=0, atol=TOLERANCE)
        done += count


@pytest.mark.parametrize("window", [None, 300])
def test_tiles_of_a_long_chunk_meet(window):
    # prefix 100 and 700 queries: three tiles, none aligned with the prefix
    case = Case([800, 520], [700, 520], 3, 1, dim=8)
    params = AttentionParams(0.35, window)
    torch.testing.assert_close(
        case.paged(params).double(), case.oracle(params), rtol=0, atol=TOLERANCE
    )


def test_one_plan_serves_layers_of_several_windows_and_shapes():
    case = Case(LENGTHS, QUERIES, 4, 2)
    other = Case(LENGTHS, QUERIES, 8, 1, dim=32)
    other.tables = case.tables
    plan = AttentionPlan(case.batch, Workspace())
    for each, params in [
        (case, AttentionParams(0.3, 20)),
        (case, AttentionParams(0.3)),
        (other, AttentionParams(0.2, 20)),
        (case, AttentionParams(0.3, 20)),
    ]:
        out = torch.empty_like(each.q)
        paged_attention(out, each.q, each.cache(), plan, params)
        torch.testing.assert_close(out.double(), each.oracle(params), rtol=0, atol=TOLERANCE)


def test_a_workspace_kept_between_steps_carries_nothing_over():
    workspace = Workspace()
    big = Case([200, 300], [1, 1], 4, 2, seed=1)
    big.v[0][:] = math.nan
    big.paged(AttentionParams(0.3), workspace=workspace)
    small = Case([10, 12], [1, 1], 4, 2, seed=2)
    params = AttentionParams(0.3)
    assert torch.equal(small.paged(params, workspace=workspace), small.paged(params))


def test_strided_queries_and_outputs():
    case = Case(LENGTHS, QUERIES, 9, 3)
    params = AttentionParams(0.3)
    expected = case.paged(params)
    n = case.q.shape[0]
    packed = torch.randn(n, 15 * 16)
    packed[:, : 9 * 16] = case.q.reshape(n, -1)
    case_out = torch.zeros(n, 12, 16)
    q = packed[:, : 9 * 16].view(n, 9, 16)
    paged_attention(case_out[:, 2:11], q, case.cache(), AttentionPlan(case.batch), params)
    assert torch.equal(case_out[:, 2:11], expected)
    assert not case_out[:, :2].any()
    assert not case_out[:, 11:].any()


def test_write_changes_the_given_slots_and_nothing_else():
    cache = KVCache.empty((4, 4, 2, 8), torch.float32, "cpu")
    packed = torch.randn(3, 8, 8)
    slots = torch.tensor([13, 2, 7])
    write_kv(cache, packed[:, :2], packed[:, 4:6], slots)
    assert torch.equal(cache.k.view(16, 2, 8)[slots], packed[:, :2])
    assert torch.equal(cache.v.view(16, 2, 8)[slots], packed[:, 4:6])
    others = [slot for slot in range(16) if slot not in slots.tolist()]
    assert not cache.k.view(16, 2, 8)[others].any()
    assert not cache.v.view(16, 2, 8)[others].any()


def test_many_sequences_of_many_lengths_form_few_groups():
    lengths = [100 + 3 * i for i in range(64)]
    case = Case(lengths, [1] * 64, 3, 1, dim=8)
    plan = AttentionPlan(case.batch).for_window(None)
    assert sum(group.slots.shape[0] for group in plan.groups) == 64
    assert len(plan.groups) <= 6
    entries = sum(group.slots.numel() for group in plan.groups)
    assert entries <= 1.15 * sum(lengths)
    params = AttentionParams(0.35)
    torch.testing.assert_close(
        case.paged(params).double(), case.oracle(params), rtol=0, atol=TOLERANCE
    )
