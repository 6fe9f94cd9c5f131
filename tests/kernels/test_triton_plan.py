"""How the work of a step is dealt out: every query meets every piece that it sees, once."""

from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo_kernels.reference.attention_plan import RaggedBatch
from octavo_kernels.triton.attention_plan import NO_WINDOW, Tiles, TritonPlan

TILES = Tiles(16, 16, 32)


def plan_of(lengths, queries, num_programs):
    starts = torch.tensor([0, *queries]).cumsum(0)
    tables = torch.zeros(len(lengths), 1, dtype=torch.int32)
    return TritonPlan(RaggedBatch(starts, torch.tensor(lengths), tables, 16), num_programs)


@st.composite
def sequences(draw):
    queries = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    return [count + draw(st.integers(0, 200)) for count in queries], queries


@given(
    sequences(),
    st.sampled_from([1, 5, 33, NO_WINDOW]),
    st.sampled_from([1, 3, 4]),
    st.sampled_from([1, 2, 7, 100, 10**6]),
)
@settings(max_examples=100, deadline=None)
def test_every_query_meets_each_piece_that_it_sees_once(batch, window, ratio, num_programs):
    lengths, queries = batch
    plan = plan_of(lengths, queries, num_programs)
    work = plan.work_for(window, TILES, ratio, 2)
    met, folded, parts = Counter(), Counter(), {}
    for token, count, position, sequence, first, end, base, _ in work.items.tolist():
        assert 1 <= count <= TILES.rows // ratio
        start = sum(queries[:sequence])
        assert position == lengths[sequence] - queries[sequence] + token - start
        for query in range(count):
            met.update((token + query, piece) for piece in range(first, end))
            folded[token + query] += base < 0
            if base >= 0:
                places = (base + (piece - first) * count + query for piece in range(first, end))
                for piece, place in zip(range(first, end), places, strict=True):
                    assert parts.setdefault(place, (token + query, piece)) == (
                        token + query,
                        piece,
                    )
    assert set(met.values()) == {1}
    seen = set()
    for sequence, (length, count) in enumerate(zip(lengths, queries, strict=True)):
        for query in range(count):
            position, token = length - count + query, sum(queries[:sequence]) + query
            lowest = max(0, position - window + 1)
            seen |= {
                (token, piece)
                for piece in range(lowest // TILES.piece, position // TILES.piece + 1)
            }
    assert seen <= set(met)
    # what several programs share is merged, in ascending order and from every place once
    assert sorted(parts) == list(range(work.num_parts))
    merged = Counter()
    for token, base, step, num in work.merges.tolist():
        assert folded[token] == 0
        pieces = [parts[base + i * step] for i in range(num)]
        assert [one for one, _ in pieces] == [token] * num
        numbers = [piece for _, piece in pieces]
        assert numbers == list(range(numbers[0], numbers[0] + num))
        merged[token] += 1
    assert all(folded[token] + merged[token] == 1 for token in range(sum(queries)))


def test_one_program_is_enough_for_one_and_pieces_are_shared_when_more_are_wanted():
    assert len(plan_of([320], [1], 1).work_for(NO_WINDOW, TILES, 4, 2).items) == 1
    few = plan_of([320], [1], 8).work_for(NO_WINDOW, TILES, 4, 2)
    assert few.items[:, 5].sub(few.items[:, 4]).tolist() == [3, 3, 3, 1]
    assert len(plan_of([320], [1], 10**6).work_for(NO_WINDOW, TILES, 4, 2).items) == 10


def test_a_full_batch_is_not_cut_and_the_longest_come_first():
    lengths = [64 + 32 * (i % 5) for i in range(50)]
    work = plan_of(lengths, [1] * 50, 64).work_for(NO_WINDOW, TILES, 1, 8)
    pieces = work.items[:, 5].sub(work.items[:, 4]).tolist()
    assert pieces == sorted(pieces, reverse=True)
    assert len(pieces) == 50
    assert not work.merges.numel()


def test_layers_of_one_shape_share_their_work_list():
    plan = plan_of([50, 20], [3, 1], 4)
    first = plan.work_for(NO_WINDOW, TILES, 4, 2)
    assert plan.work_for(NO_WINDOW, TILES, 4, 2) is first
    assert plan.work_for(20, TILES, 4, 2) is not first


def test_default_tiles_hold_all_heads_of_a_key_head_and_depend_on_the_layer_alone():
    for ratio in (1, 3, 4, 8, 71):
        for dtype in (torch.float32, torch.float16):
            for dim in (64, 80, 128, 256):
                tiles = Tiles.for_layer(ratio, dim, dtype)
                assert tiles.rows >= ratio
                assert tiles.piece % tiles.keys == 0
                assert all(size & (size - 1) == 0 for size in (tiles.rows, tiles.keys))
