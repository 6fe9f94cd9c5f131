"""The CPU kernels' paged attention against the oracle in float64, and what it may never read."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_attention_case import NAN, CpuCase
from cpu_kernels import variants
from octavo_kernels.cpu.attention import BatchBuffers, attention_call, write_call
from octavo_kernels.cpu.toolchain import BuildOptions
from octavo_kernels.reference.attention import AttentionParams

TOLERANCE = 5e-6
#: positions of a piece of the reduction, as attention_work.h has it
PIECE = 256
#: decodes, drafts, chunks and prefills, on both sides of a piece and of a tile of queries
LENGTHS = [1, 17, 33, 200, 340, 64, 5, 90, 16, 700]
QUERIES = [1, 1, 33, 1, 300, 7, 1, 60, 1, 2]
DTYPES = ["float32", "float16", "int8", "int4"]


@pytest.fixture(params=["native", "haswell"])
def options(request):
    """Each variant of the kernels."""
    if request.param not in variants():
        pytest.skip("this machine has AVX2 alone, which is the native variant")
    return BuildOptions(architecture=request.param)


def assert_right(case: CpuCase, params: AttentionParams, atol: float = TOLERANCE) -> None:
    torch.testing.assert_close(case.attend(params).double(), case.oracle(params), rtol=0, atol=atol)


# ----------------------------------------------------------------------------------- parity


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("window", [None, 1, 40, 300])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (9, 3), (4, 1), (7, 1)])
def test_parity_with_the_oracle(options, heads, kv_heads, window, softcap):
    case = CpuCase(LENGTHS, QUERIES, heads, kv_heads, options=options)
    assert_right(case, AttentionParams(0.3, window, softcap))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [8, 20, 64, 80])
@pytest.mark.parametrize("block_size", [1, 7, 16, 24])
def test_parity_at_all_block_and_head_sizes_and_dtypes(options, dtype, dim, block_size):
    case = CpuCase(
        [9, 70, 300], [1, 1, 20], 6, 2, dim=dim, block_size=block_size, options=options, dtype=dtype
    )
    params = AttentionParams(dim**-0.5)
    if dtype in {"float32", "float16"}:
        case.round_to(getattr(torch, dtype))
        assert_right(case, params)
    else:
        cache = case.pages()
        out = case.attend(params, cache)
        case.round_to_codes(params)
        # weights are rounded to a part in 32,767 of the largest
        torch.testing.assert_close(out.double(), case.oracle(params), rtol=0, atol=2e-4)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_parity_of_any_batch(data):
    lengths = data.draw(st.lists(st.integers(1, 600), min_size=1, max_size=6))
    queries = [data.draw(st.integers(1, length)) for length in lengths]
    ratio, kv_heads = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    case = CpuCase(
        lengths,
        queries,
        ratio * kv_heads,
        kv_heads,
        dim=data.draw(st.sampled_from([4, 16, 36])),
        block_size=data.draw(st.sampled_from([1, 5, 16, 64])),
        options=BuildOptions(architecture=data.draw(st.sampled_from(variants()))),
        seed=data.draw(st.integers(0, 1000)),
    )
    window = data.draw(st.none() | st.integers(1, 700))
    assert_right(case, AttentionParams(0.3, window, data.draw(st.sampled_from([None, 2.0]))))


def test_large_scores_and_scores_far_apart(options):
    case = CpuCase([300, 400], [1, 40], 4, 2, options=options)
    case.q *= 30
    # scores of a few hundred are rounded in their fifth digit after the point
    assert_right(case, AttentionParams(1.0), atol=1e-4)
    assert_right(case, AttentionParams(1.0, None, 50.0), atol=1e-4)


def test_halves_are_bounded_and_codes_of_equal_numbers_are_exact(options):
    case = CpuCase([20], [1], 2, 1, options=options, dtype="float16")
    case.v[0][3] = 1e6
    assert case.attend(AttentionParams(0.3)).isfinite().all()
    for dtype in ("int8", "int4"):
        case = CpuCase([20], [1], 2, 1, options=options, dtype=dtype)
        case.v[0][:] = 0.5
        torch.testing.assert_close(case.attend(AttentionParams(0.3)), torch.full((1, 2, 16), 0.5))
        case.v[0][:] = 0
        assert not case.attend(AttentionParams(0.3)).any()


def test_values_that_are_equal_once_rotated(options):
    case = CpuCase([40], [1], 2, 1, options=options, dtype="int4")
    case.k[0][:] = 0  # all weigh the same
    # a single number that is not 0 is spread over all dimensions alike
    case.v[0][:] = 0
    case.v[0][::2, :, 0] = -0.5
    case.v[0][1::2] = torch.randn(20, 1, 16, generator=case.generator) * 0.01
    assert_right(case, AttentionParams(0.3), atol=2e-4)


# ----------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize("window", [None, 24, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_blocks_and_what_stands_elsewhere_change_no_bit(options, dtype, window):
    case = CpuCase(LENGTHS, QUERIES, 9, 3, options=options, dtype=dtype)
    params = AttentionParams(0.3, window)
    before = case.attend(params)
    assert torch.equal(case.attend(params, num_threads=1), before)
    assert torch.equal(case.attend(params, num_threads=3), before)
    assert torch.equal(case.attend(params, case.pages(filler=0)), before)
    tables = case.tables.clone()
    case.shuffle([-(-length // 16) for length in LENGTHS])
    assert not torch.equal(case.tables, tables)
    assert torch.equal(case.attend(params), before)


def steps_of(length: int, chunks: list[int]) -> list[tuple[int, int]]:
    """(first, end) of chunks that are repeated until all is done."""
    steps, done = [], 0
    while done < length:
        count = min(chunks[len(steps) % len(chunks)], length - done)
        steps.append((done, done + count))
        done += count
    return steps


@pytest.mark.parametrize(
    ("dtype", "ratio", "dim", "window_and_cap"),
    [
        ("float32", 1, 16, (None, None)),
        ("float32", 3, 16, (9, None)),
        ("float32", 7, 16, (280, 3.0)),
        ("float16", 3, 16, (None, None)),
        ("float16", 1, 16, (280, None)),
        ("int8", 3, 16, (None, None)),
        ("int8", 7, 16, (9, 3.0)),
        ("int4", 3, 16, (280, None)),
        ("int4", 4, 16, (None, 3.0)),
        # many rows of such heads are multiplied on AMX, where there is that
        ("int8", 3, 64, (None, None)),
        ("int8", 5, 128, (70, None)),
        ("int4", 3, 64, (280, 3.0)),
        ("int4", 1, 128, (None, None)),
    ],
)
def test_any_chunks_have_the_bits_of_one_shot(options, dtype, ratio, dim, window_and_cap):
    length, params = 600, AttentionParams(0.3, *window_and_cap)
    case = CpuCase([length], [length], ratio, 1, dim=dim, options=options, dtype=dtype)
    whole = case.attend(params)
    for chunks in ([1], [5, 1, 2], [PIECE], [97, 1, 160]):
        cache = case.empty_pages()
        first_step = 500 if chunks == [1] else 0  # a prefix that another request left
        if first_step:
            case.write(cache, 0, 0, first_step)
        for first, end in steps_of(length - first_step, chunks):
            rows = slice(first_step + first, first_step + end)
            case.write(cache, 0, rows.start, rows.stop)
            q = case.q[rows]
            out = torch.empty_like(q)
            batch = case.buffers(queries=[end - first], lengths=[rows.stop])
            case.run(attention_call(out, q, cache, batch, params))
            assert torch.equal(out, whole[rows]), (chunks, rows)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sequence_alone_has_the_bits_it_has_in_a_batch(options, dtype):
    case = CpuCase(LENGTHS, QUERIES, 9, 3, options=options, dtype=dtype)
    params, cache = AttentionParams(0.3), case.pages()
    together = case.attend(params, cache)
    for i, (length, count) in enumerate(zip(LENGTHS, QUERIES, strict=True)):
        start = int(case.starts[i])
        q = case.q[start : start + count]
        out = torch.empty_like(q)
        batch = case.buffers(rows=slice(i, i + 1), queries=[count], lengths=[length])
        case.run(attention_call(out, q, cache, batch, params))
        assert torch.equal(out, together[start : start + count]), i


@pytest.mark.parametrize("lengths", [[5000], [3000, 700, 1], [2600, 2600]])
def test_pieces_that_threads_share_have_the_bits_of_one_thread(options, lengths):
    case = CpuCase(lengths, [1 for _ in lengths], 3, 1, options=options)
    params, cache = AttentionParams(0.3), case.pages()
    alone = case.attend(params, cache, num_threads=1)
    for num_threads in (2, 3, 8):
        assert torch.equal(case.attend(params, cache, num_threads=num_threads), alone)
    torch.testing.assert_close(alone.double(), case.oracle(params), rtol=0, atol=TOLERANCE)


def test_little_room_for_parts_changes_no_bit(options, monkeypatch):
    case = CpuCase([3000, 2000], [1, 40], 3, 1, options=options)
    params, cache = AttentionParams(0.3), case.pages()
    before = case.attend(params, cache)
    for room in (0, 1000, 20_000):
        monkeypatch.setattr("octavo_kernels.cpu.attention._PARTS_FLOATS", room)
        assert torch.equal(case.attend(params, cache), before)


# ----------------------------------------------------------------------------------- what is read


def test_blocks_out_of_the_window_may_be_gone(options):
    case = CpuCase([100, 64, 637], [3, 1, 1], 4, 2, block_size=4, options=options)
    params, cache = AttentionParams(0.3, 20), case.pages()
    clean = case.attend(params, cache)
    # the first query of sequence 0 stands at 97 and sees 78 and following; the others 44 and 617
    for row, first in zip(case.tables, (78, 44, 617), strict=True):
        row[: first // 4] = 0
    assert torch.equal(case.attend(params, cache), clean)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [16, 64])
def test_one_sequence_of_nan_leaves_the_others_alone(options, dtype, dim):
    case = CpuCase([40, 41, 60, 70], [1, 1, 1, 30], 4, 2, dim=dim, options=options, dtype=dtype)
    params = AttentionParams(0.3)
    clean = case.attend(params)
    case.k[1][3, 0, 2] = NAN
    case.v[3][50] = NAN
    out = case.attend(params)
    assert out[1, :2].isnan().all()
    assert torch.equal(out[1, 2:], clean[1, 2:])
    assert torch.equal(out[[0, 2]], clean[[0, 2]])
    # of the last sequence, the queries at 40 to 49 do not see position 50
    assert torch.equal(out[3:13], clean[3:13])
    assert out[13:].isnan().all()


def test_counts_say_how_much_of_the_buffers_is_live(options):
    case = CpuCase([40, 50], [2, 3], 4, 2, options=options)
    params, cache = AttentionParams(0.3), case.pages()
    expected = case.attend(params, cache)
    batch = case.buffers()
    wide = BatchBuffers(
        batch.num_seqs,
        batch.num_tokens,
        torch.cat((batch.query_start, torch.tensor([10**6]))),
        torch.cat((batch.seq_lens, torch.tensor([10**6]))),
        torch.cat((batch.block_tables, torch.full_like(batch.block_tables[:1], 10**6))),
        batch.slots,
    )
    out, q = torch.full((9, 4, 16), 777.0), torch.cat((case.q, torch.full((4, 4, 16), NAN)))
    case.run(attention_call(out, q, cache, wide, params))
    assert torch.equal(out[:5], expected)
    assert (out[5:] == 777).all()
    batch.num_seqs[0] = 0
    out.fill_(777.0)
    case.run(attention_call(out, q, cache, wide, params))
    assert (out == 777).all()


def test_strided_queries_and_outputs(options):
    case = CpuCase(LENGTHS, QUERIES, 9, 3, options=options)
    params, cache = AttentionParams(0.3), case.pages()
    expected = case.attend(params, cache)
    n = case.q.shape[0]
    packed, out = torch.randn(n, 15, 16), torch.zeros(n, 12, 16)
    packed[:, :9] = case.q
    case.run(attention_call(out[:, 2:11], packed[:, :9], cache, case.buffers(), params))
    assert torch.equal(out[:, 2:11], expected)
    assert not out[:, :2].any()
    assert not out[:, 11:].any()


def test_other_dtypes_and_layouts_of_tensors_are_refused():
    case = CpuCase([3], [1], 2, 1)
    cache, batch = case.empty_pages(), case.buffers()
    with pytest.raises(ValueError, match="float32 with contiguous heads, not torch"):
        attention_call(case.q.half(), case.q, cache, batch, AttentionParams(1.0))
    with pytest.raises(ValueError, match="contiguous heads"):
        write_call(cache, case.k[0], case.v[0].transpose(0, 2), batch)


# ----------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 5, 16])
def test_write_changes_the_given_slots_and_nothing_else(options, dtype, block_size):
    case = CpuCase([60], [1], 2, 2, dim=20, block_size=block_size, options=options, dtype=dtype)
    whole = case.pages(filler=0x55)
    by_parts = case.empty_pages(0x55)
    order = torch.randperm(60, generator=case.generator)
    for rows in order.split(7):
        # strided views of a wider tensor
        packed = torch.cat((case.k[0][rows], case.v[0][rows]), 1)
        batch = case.buffers(case.slots(0)[rows])
        before = by_parts.pages.copy()
        case.run(write_call(by_parts, packed[:, :2], packed[:, 2:], batch))
        blocks = {int(block) for block in case.slots(0)[rows] // block_size}
        changed = (by_parts.pages != before).any(axis=(1, 2)).nonzero()[0]
        assert set(changed.tolist()) <= blocks
    assert (by_parts.pages == whole.pages).all()


def test_all_bytes_of_blocks_that_are_written_whole_come_from_what_is_written(options):
    for dtype in DTYPES:
        case = CpuCase([64], [1], 2, 2, dim=64, options=options, dtype=dtype)
        blocks = case.tables[0, :4].long()
        one, other = case.pages(filler=0).pages[blocks], case.pages(filler=0xFF).pages[blocks]
        assert (one == other).all()
