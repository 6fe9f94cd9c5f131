"""How much of a window's memory comes back, and what may be promised because of it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.errors import RequestError
from octavo.interfaces.allocator import AllocatorContext, BlockTable
from octavo.interfaces.cache_demand import CacheDemand
from octavo.interfaces.executor import CacheGroup
from octavo.testing.engines import EngineSetup, check_invariants, make_engine, request
from octavo.testing.stub_executor import expected_output
from octavo_plugins.allocators.paged import PagedAllocator
from octavo_plugins.evictions.lru import Lru

FULL, STATE = CacheGroup(), CacheGroup(1)


def window(reach: int) -> CacheGroup:
    return CacheGroup(reach)


GROUPS = st.sampled_from(
    [(FULL,), (window(5),), (FULL, window(8)), (window(3), STATE), (FULL, window(7), STATE)]
)


def make(groups, num_blocks: int, size: int, max_tokens_ahead: int | None) -> PagedAllocator:
    context = AllocatorContext(
        num_blocks=num_blocks + 1,
        block_size=size,
        max_model_len=500,
        enable_prefix_caching=True,
        eviction=Lru(),
        groups=groups,
        max_tokens_ahead=max_tokens_ahead,
    )
    return PagedAllocator(None, context)


@settings(max_examples=150, deadline=None)
@given(
    groups=GROUPS,
    size=st.integers(1, 6),
    depth=st.integers(0, 1),
    chunks=st.lists(st.integers(1, 9), min_size=1, max_size=25),
)
@example(groups=(window(5),), size=4, depth=1, chunks=[9] * 12)
def test_no_chunks_hold_more_blocks_than_demand_says(groups, size, depth, chunks) -> None:
    """Steps are committed `depth` steps late, and blocks trimmed as the engine does it."""
    allocator = make(groups, 400, size, 9 * (depth + 1))
    table, tokens = BlockTable.of(len(groups)), list(range(sum(chunks)))
    most = allocator.context.demand.num_blocks(len(tokens))
    ends: list[int] = []
    scheduled = committed = 0
    for chunk in chunks:
        scheduled += chunk
        ends.append(scheduled)
        assert allocator.allocate(table, scheduled)
        assert allocator.counts().used <= most
        if len(ends) > depth:
            before, committed = committed, ends.pop(0)
            allocator.commit(table, tokens, committed)
            if committed // size > before // size:
                allocator.trim(table, committed)


@settings(max_examples=100, deadline=None)
@given(
    groups=GROUPS, num_blocks=st.integers(1, 60), size=st.integers(1, 6), ahead=st.integers(1, 20)
)
def test_the_longest_request_fits_and_the_next_longer_does_not(
    groups, num_blocks, size, ahead
) -> None:
    demand = CacheDemand(groups, size, ahead)
    longest = demand.longest(num_blocks, 300)
    assert longest % size == 0
    assert demand.num_blocks(longest) <= num_blocks
    if longest < 300:
        assert demand.num_blocks(longest + 1) > num_blocks


def test_without_a_bound_nothing_is_promised_to_come_back() -> None:
    demand = CacheDemand((FULL, window(4)), 4)
    assert demand.num_blocks(40) == 20
    assert demand.longest(20, 1000) == 40


def test_one_group_that_sees_all_holds_what_it_always_held() -> None:
    demand = CacheDemand((FULL,), 16, 2048)
    assert (demand.num_blocks(100), demand.longest(50, 10)) == (7, 50 * 16)


SETUPS = {
    "window": EngineSetup(groups=(window(5),), num_blocks=8, max_num_batched_tokens=8),
    "window-late": EngineSetup(
        groups=(window(5),), num_blocks=9, max_num_batched_tokens=8, depth=1, is_late=True
    ),
    "full-window": EngineSetup(
        groups=(FULL, window(5)), num_blocks=40, max_num_batched_tokens=8
    ),
    "window-state": EngineSetup(
        groups=(window(5), STATE), num_blocks=14, max_num_batched_tokens=8
    ),
    "all-three-late": EngineSetup(
        groups=(FULL, window(5), STATE), num_blocks=50, max_num_batched_tokens=8, depth=1,
        is_late=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETUPS)
@settings(max_examples=25, deadline=None)
@given(shares=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=6))
@example(shares=[(100, 100)])
@example(shares=[(100, 1), (1, 100), (50, 50)])
def test_S4_requests_that_are_accepted_end_in_pools_far_smaller_than_their_texts(
    name: str, shares: list[tuple[int, int]]
) -> None:
    """`shares` are per cent of what one request may hold: of prompt, and of what is left."""
    engine = make_engine(SETUPS[name])
    capacity = min(engine.core.allocator.capacity_tokens, 128)
    assert capacity > (engine.core.allocator.counts().total - 4) * 4 // len(SETUPS[name].groups)
    wanted = {}
    for number, (prompt_share, output_share) in enumerate(shares):
        length = max(1, (capacity - 1) * prompt_share // 100)
        max_tokens = max(1, (capacity - length) * output_share // 100)
        prompt = [(number % 2 * 97 + place) % 900 for place in range(length)]
        engine.add(request(f"r{number}", prompt, max_tokens, seed=number))
        wanted[f"r{number}"] = expected_output(prompt, max_tokens, number)
    outputs: dict[str, list[int]] = {key: [] for key in wanted}
    for _ in range(4000):
        if not engine.has_work:
            break
        for output in engine.step():
            outputs[output.request_id] += output.token_ids
        check_invariants(engine)
    assert outputs == wanted


def test_what_can_never_fit_is_refused_by_what_windows_leave() -> None:
    engine = make_engine(SETUPS["full-window"])
    capacity = engine.core.allocator.capacity_tokens
    assert capacity == (39 - 5) * 4  # a window of 5, a chunk of 8 and their offset: 5 blocks of 4
    with pytest.raises(RequestError, match=f"the KV cache holds {capacity}"):
        engine.add(request("r", list(range(capacity)), 1))
