"""Which prefixes can be gone on from, when blocks of one group are cached and another's are not."""

from __future__ import annotations

import pytest

from octavo.interfaces.allocator import AllocatorContext, BlockTable
from octavo.interfaces.executor import CacheGroup
from octavo_plugins.allocators.paged import PagedAllocator
from octavo_plugins.evictions.lru import Lru

SIZE = 4
FULL, WINDOW, STATE = CacheGroup(), CacheGroup(5), CacheGroup(1)
TEXT = [place % 7 for place in range(33)]


def make(*groups: CacheGroup, num_blocks: int = 60) -> PagedAllocator:
    context = AllocatorContext(
        num_blocks=num_blocks + 1,
        block_size=SIZE,
        max_model_len=200,
        enable_prefix_caching=True,
        eviction=Lru(),
        groups=groups,
    )
    return PagedAllocator(None, context)


def hit(allocator: PagedAllocator, tokens: list[int] = TEXT) -> int:
    return allocator.match(BlockTable.of(len(allocator.context.groups)), tokens)


def run(allocator: PagedAllocator, tokens: list[int] = TEXT) -> BlockTable:
    """Compute tokens block by block, as an engine does; return the table."""
    table = BlockTable.of(len(allocator.context.groups))
    num_hits = allocator.match(table, tokens)
    for end in range(num_hits + SIZE, len(tokens) + SIZE, SIZE):
        end = min(end, len(tokens))  # noqa: PLW2901 - the last block is not full
        assert allocator.allocate(table, end, num_hit_tokens=num_hits)
        allocator.commit(table, tokens, end)
        allocator.trim(table, end)
    return table


def evict(allocator: PagedAllocator, group: int, *indices: int) -> None:
    """Let the cached blocks of a group with these numbers in TEXT go."""
    for index in indices:
        chain = TEXT[: (index + 1) * SIZE]
        (victim,) = [
            block
            for block, name in enumerate(allocator._name_of)
            if name is not None and name[1] == group and tokens_of(name[0]) == chain
        ]
        allocator._eviction.remove(victim)
        allocator._forget(victim)
        allocator._free.append(victim)


def tokens_of(key) -> list[int]:  # type: ignore[no-untyped-def]
    return [] if key is None else [*tokens_of(key.parent), *key.tokens]


@pytest.mark.parametrize(
    ("groups", "evicted", "expected"),
    [
        # what a token at 32 reads: all of FULL, 27 .. 31 of WINDOW, the state of block 7
        ((FULL, WINDOW), {}, 32),
        ((FULL, WINDOW), {1: [7]}, 28),
        ((FULL, WINDOW), {1: [6]}, 24),
        ((FULL, WINDOW), {1: [5]}, 32),
        ((FULL, WINDOW), {1: [0, 1, 2, 3, 4, 5]}, 32),
        ((FULL, WINDOW), {1: [3, 6]}, 24),
        ((FULL, WINDOW), {1: [4, 7]}, 28),
        ((FULL, WINDOW), {0: [5]}, 20),
        ((FULL, WINDOW), {0: [0]}, 0),
        ((FULL, WINDOW), {0: [7], 1: [3, 5]}, 12),
        ((FULL, STATE), {1: [7, 6]}, 24),
        ((FULL, STATE), {1: [0, 1, 2, 3, 4, 5, 6]}, 32),
        ((FULL, STATE), {1: [0, 1, 2, 3, 4, 5, 6, 7]}, 0),
        ((WINDOW,), {0: [0, 1, 2, 3, 4, 5]}, 32),
        ((WINDOW,), {0: [6]}, 24),
        ((WINDOW, STATE), {0: [2, 5], 1: [3, 7]}, 20),
        ((FULL, WINDOW, STATE), {0: [6], 1: [4], 2: [3]}, 12),
    ],
)
def test_a_hit_ends_where_every_group_can_go_on(groups, evicted, expected) -> None:
    allocator = make(*groups)
    allocator.free(run(allocator))
    assert hit(allocator) == 32
    for group, indices in evicted.items():
        evict(allocator, group, *indices)
    assert hit(allocator) == expected
    # and what is computed anew after the hit completes the prefix again
    table = run(allocator)
    assert [any(ids) for ids in table.groups] == [True] * len(groups)
    allocator.free(table)
    assert hit(allocator) == 32


def test_a_hit_takes_what_is_within_reach_and_leaves_the_rest_to_be_evicted() -> None:
    allocator = make(FULL, WINDOW, STATE)
    allocator.free(run(allocator))
    table = BlockTable.of(3)
    assert allocator.match(table, TEXT) == 32
    assert allocator.allocate(table, 33, num_hit_tokens=32)
    held = [[bool(block) for block in ids] for ids in table.groups]
    assert held == [[True] * 9, [False] * 6 + [True] * 3, [False] * 7 + [True] * 2]
    assert allocator.counts().used == 9 + 3 + 2
    assert allocator.counts().cached == 6 + 7


def hits_while_another_grows(allocator: PagedAllocator) -> list[int]:
    allocator.free(run(allocator))
    other = BlockTable.of(2)
    hits = []
    for num_tokens in range(SIZE, 9 * SIZE, SIZE):
        assert allocator.allocate(other, num_tokens)
        hits.append(hit(allocator))
    return hits


def test_the_end_of_every_group_is_evicted_before_the_beginning_of_any() -> None:
    """A block that is kept of one group alone would be worth nothing."""
    allocator = make(FULL, FULL, num_blocks=18)
    assert hits_while_another_grows(allocator) == [32, 28, 24, 20, 16, 12, 8, 4]


def test_the_last_snapshot_outlives_those_that_were_left_on_the_way() -> None:
    allocator = make(FULL, STATE, num_blocks=18)
    assert hits_while_another_grows(allocator) == [32] * 4 + [0] * 4


def test_a_window_that_was_given_back_serves_a_text_that_branches_off_within_it() -> None:
    allocator = make(FULL, WINDOW)
    table = run(allocator)
    branch = [*TEXT[:14], *[9] * 8]
    assert hit(allocator, branch) == 12
    other = run(allocator, branch)
    assert other.groups[0][:3] == table.groups[0][:3]
    assert other.groups[1][:2] == [0, 0]
    allocator.free(other)
    allocator.free(table)
    assert allocator.counts().used == 0


def test_texts_in_flight_share_windows_and_states() -> None:
    allocator = make(FULL, WINDOW, STATE)
    first = run(allocator)
    used = allocator.counts().used
    second = run(allocator)
    third = run(allocator, [*TEXT[:-1], 9])
    assert allocator.counts().used == used + 2 * 3  # a block of their own in each group
    for table in (first, second, third):
        allocator.free(table)
    assert allocator.counts().used == 0


def test_what_is_forgotten_in_one_group_is_no_hit_and_what_is_computed_again_is_one() -> None:
    allocator = make(FULL, STATE)
    table = run(allocator)
    assert allocator.reset_cache() is False  # in use: they lose their names
    assert hit(allocator) == 0
    allocator.free(table)
    assert allocator.counts().cached == 0
    allocator.free(run(allocator))
    assert hit(allocator) == 32
    assert allocator.reset_cache() is True
    assert hit(allocator) == 0
