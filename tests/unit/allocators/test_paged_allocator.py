"""The paged allocator, as a state machine: A1 to A8 after every operation."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from octavo.interfaces.allocator import AllocatorContext, BlockTable
from octavo_plugins.allocators.paged import PagedAllocator
from octavo_plugins.evictions.lru import Lru

SIZE, BLOCKS = 3, 12


def make(num_blocks: int = BLOCKS + 1, size: int = SIZE, hasher=hash) -> PagedAllocator:  # type: ignore[no-untyped-def]
    context = AllocatorContext(
        num_blocks=num_blocks,
        block_size=size,
        max_model_len=64,
        enable_prefix_caching=True,
        eviction=Lru(),
    )
    return PagedAllocator(None, context, hasher)


class Sequence:
    """A request's side of the story: its tokens, its table, how much is committed."""

    def __init__(self, tokens: list[int], extra: object) -> None:
        self.tokens, self.table, self.committed = tokens, BlockTable.of(extra=extra), 0


class PagedMachine(RuleBasedStateMachine):
    """`content` is a model of memory: what each block holds, written as a model would."""

    sequences = Bundle("sequences")

    def __init__(self) -> None:
        super().__init__()
        self.allocator = make(hasher=lambda _: 7)  # every hash collides
        self.alive: list[Sequence] = []
        self.content: dict[int, tuple[tuple[int, ...], object]] = {}

    def write(self, sequence: Sequence, end: int) -> None:
        for index in range(sequence.committed // SIZE, -(-end // SIZE)):
            block = sequence.table.block_ids[index]
            tokens = tuple(sequence.tokens[: min(end, (index + 1) * SIZE)])
            self.content[block] = (tokens, sequence.table.extra)

    @rule(
        target=sequences,
        stem=st.integers(0, 1),
        tail=st.lists(st.integers(0, 1), max_size=6),
        extra=st.sampled_from([None, "salt"]),
    )
    def start(self, stem: int, tail: list[int], extra: object) -> Sequence:
        sequence = Sequence([stem, 5, 6, 7, *tail], extra)
        table, tokens = sequence.table, sequence.tokens
        before = self.allocator.counts()
        hit = self.allocator.match(table, tokens)
        assert hit % SIZE == 0
        assert hit < len(tokens)  # A8
        could = self.allocator.can_allocate(table, len(tokens), num_hit_tokens=hit)
        done = self.allocator.allocate(table, len(tokens), num_hit_tokens=hit)
        assert could == done
        if not done:
            assert self.allocator.counts() == before  # A2
            assert table.block_ids == []
            return sequence
        for index in range(hit // SIZE):  # A4: what is shared holds equal tokens and extra
            known = self.content[table.block_ids[index]]
            assert known == (tuple(tokens[: (index + 1) * SIZE]), extra)
        sequence.committed = hit
        self.write(sequence, len(tokens))
        self.alive.append(sequence)
        return sequence

    @rule(sequence=sequences, steps=st.integers(1, 4))
    def commit(self, sequence: Sequence, steps: int) -> None:
        if sequence in self.alive:
            sequence.committed = min(len(sequence.tokens), sequence.committed + steps)
            self.allocator.commit(sequence.table, sequence.tokens, sequence.committed)

    @rule(sequence=sequences, token=st.integers(0, 1))
    def grow(self, sequence: Sequence, token: int) -> None:
        if sequence not in self.alive:
            return
        before = self.allocator.counts()
        if self.allocator.allocate(sequence.table, len(sequence.tokens) + 1):
            sequence.tokens.append(token)
            self.write(sequence, len(sequence.tokens))
        else:
            assert self.allocator.counts() == before

    @rule(sequence=sequences, drop=st.integers(1, 4))
    def roll_back(self, sequence: Sequence, drop: int) -> None:
        """Only uncommitted tokens are ever rolled back (A7)."""
        if sequence in self.alive:
            keep = max(sequence.committed, len(sequence.tokens) - drop, 1)
            del sequence.tokens[keep:]
            self.allocator.truncate(sequence.table, keep)

    @rule(sequence=consumes(sequences))
    def free(self, sequence: Sequence) -> None:
        self.allocator.free(sequence.table)
        self.allocator.free(sequence.table)  # twice is fine
        if sequence in self.alive:
            self.alive.remove(sequence)

    @rule()
    def reset(self) -> None:
        assert self.allocator.reset_cache() == (not self.alive)

    @invariant()
    def A1_A3_counts(self) -> None:
        counts = self.allocator.counts()
        owned = {block for sequence in self.alive for block in sequence.table.block_ids}
        assert counts.free + counts.used + counts.cached == counts.total == BLOCKS
        assert counts.used == len(owned)
        assert 0 not in owned

    @invariant()
    def A5_what_is_owned_keeps_its_content(self) -> None:
        for sequence in self.alive:
            for index in range(sequence.committed // SIZE):
                tokens, extra = self.content[sequence.table.block_ids[index]]
                assert tokens == tuple(sequence.tokens[: (index + 1) * SIZE])
                assert extra == sequence.table.extra

    def teardown(self) -> None:
        for sequence in self.alive:
            self.allocator.free(sequence.table)
        counts = self.allocator.counts()
        assert counts.free + counts.cached == counts.total  # A6


TestPagedMachine = PagedMachine.TestCase
TestPagedMachine.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def filled(allocator: PagedAllocator, tokens: list[int], extra: object = None) -> BlockTable:
    table = BlockTable.of(extra=extra)
    hit = allocator.match(table, tokens)
    assert allocator.allocate(table, len(tokens), num_hit_tokens=hit)
    allocator.commit(table, tokens, len(tokens))
    return table


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 48])
def test_B93_a_hit_leaves_a_token_to_compute(length: int) -> None:
    allocator = make(64, 16)
    tokens = list(range(length))
    allocator.free(filled(allocator, tokens))
    hits = []
    for _ in range(2):
        hits.append(allocator.match(BlockTable.of(), tokens))
        allocator.free(filled(allocator, tokens))
    assert hits == [(length - 1) // 16 * 16] * 2


def test_salt_and_adapter_part_the_cache() -> None:
    allocator = make()
    allocator.free(filled(allocator, list(range(7)), ("salt", None)))
    assert allocator.match(BlockTable.of(extra=("salt", None)), list(range(7))) == 6
    assert allocator.match(BlockTable.of(extra=("other", None)), list(range(7))) == 0
    assert allocator.match(BlockTable.of(extra=("salt", "lora")), list(range(7))) == 0


def test_the_tail_is_evicted_before_the_head() -> None:
    allocator = make(num_blocks=5)
    allocator.free(filled(allocator, list(range(12))))
    other = BlockTable.of()
    assert allocator.allocate(other, 2 * SIZE)
    assert allocator.match(BlockTable.of(), list(range(12))) == 2 * SIZE


def test_equal_prefixes_with_different_parents_do_not_meet() -> None:
    allocator = make(hasher=lambda _: 0)
    allocator.free(filled(allocator, [1, 1, 1, 2, 2, 2, 9]))
    assert allocator.match(BlockTable.of(), [3, 3, 3, 2, 2, 2, 9]) == 0
    assert allocator.match(BlockTable.of(), [1, 1, 1, 2, 2, 2, 9]) == 6


def test_a_prefix_recomputed_after_eviction_finds_its_old_tail() -> None:
    allocator = make(num_blocks=4)
    first = filled(allocator, [1, 1, 1, 2, 2, 2, 3])
    allocator.free(first)
    # Evict the head by hand: the tail stays cached, hanging from a key that is gone.
    head = allocator._blocks_of.pop(next(k for k in allocator._blocks_of if k.parent is None))[0]
    allocator._name_of[head] = None
    allocator.context.eviction.remove(head)
    allocator._free.append(head)
    filled(allocator, [1, 1, 1, 9])
    assert allocator.match(BlockTable.of(), [1, 1, 1, 2, 2, 2, 3]) == 6
