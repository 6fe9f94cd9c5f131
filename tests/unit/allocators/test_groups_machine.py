"""The paged allocator with several groups of layers, as a state machine: A1 to A9 after every step.

A model of memory goes along: it writes into each block what a model's layers would leave there,
so that a hit, a trimmed window or an eviction that is wrong shows as wrong content.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from octavo.interfaces.allocator import AllocatorContext, BlockTable
from octavo.interfaces.executor import CacheGroup
from octavo_plugins.allocators.paged import PagedAllocator
from octavo_plugins.evictions.lru import Lru

SIZE, BLOCKS = 3, 26
FULL, WINDOW, WIDE, STATE = CacheGroup(), CacheGroup(4), CacheGroup(7), CacheGroup(1)


class Sequence:
    """A request's side of the story: its tokens, its table, how much is committed."""

    def __init__(self, tokens: list[int], extra: object, num_groups: int) -> None:
        self.tokens, self.committed = tokens, 0
        self.table = BlockTable.of(num_groups, extra)

    def content(self, index: int, end: int) -> tuple[object, ...]:
        """Return what block `index` holds when the sequence is written up to `end`."""
        return tuple(self.tokens[: min(end, (index + 1) * SIZE)]), self.table.extra


def first_needed(group: CacheGroup, position: int) -> int:
    """Return the first block that a token at `position` reads."""
    return 0 if group.reach is None else max(0, position - group.reach) // SIZE


class GroupsMachine(RuleBasedStateMachine):
    """`content[block]` is (group, tokens of the whole prefix, extra)."""

    sequences = Bundle("sequences")
    groups: tuple[CacheGroup, ...] = (FULL, WINDOW)

    def __init__(self) -> None:
        super().__init__()
        context = AllocatorContext(
            num_blocks=BLOCKS + 1,
            block_size=SIZE,
            max_model_len=64,
            enable_prefix_caching=True,
            eviction=Lru(),
            groups=self.groups,
        )
        self.allocator = PagedAllocator(None, context, lambda _: 7)  # every hash collides
        self.alive: list[Sequence] = []
        self.content: dict[int, tuple[object, ...]] = {}

    # ------------------------------------------------------------------ the model

    def write(self, sequence: Sequence, end: int) -> None:
        """Compute the positions from the committed one to `end`."""
        for index in range(sequence.committed // SIZE, -(-end // SIZE)):
            for group, ids in enumerate(sequence.table.groups):
                assert ids[index], "a block is missing that is written to"
                self.content[ids[index]] = (group, *sequence.content(index, end))

    def check_readable(self, sequence: Sequence, position: int) -> None:
        """What a token at `position` reads is there, in every group (A4, A5, A9)."""
        for number, (group, ids) in enumerate(zip(self.groups, sequence.table.groups, strict=True)):
            for index in range(first_needed(group, position), position // SIZE):
                known = self.content[ids[index]]
                assert known == (number, *sequence.content(index, (index + 1) * SIZE))

    def longest_hit(self, tokens: list[int], extra: object) -> int:
        """Return the longest hit there is, by trying all of them on the names of blocks."""
        named = {
            self.content[block]
            for block, name in enumerate(self.allocator._name_of)
            if name is not None
        }
        best = 0
        for end in range(SIZE, len(tokens), SIZE):  # one token is left to compute (A8)
            if all(
                (number, tuple(tokens[: (index + 1) * SIZE]), extra) in named
                for number, group in enumerate(self.groups)
                for index in range(first_needed(group, end), end // SIZE)
            ):
                best = end
        return best

    # ------------------------------------------------------------------ what may happen

    @rule(
        target=sequences,
        length=st.integers(1, 16),
        change=st.integers(0, 40),
        extra=st.sampled_from([None, None, "salt"]),
    )
    def start(self, length: int, change: int, extra: object) -> Sequence:
        """Start a prefix of one text, or of one that differs from it in one place."""
        text = [7 if place == change else place % 5 for place in range(length)]
        sequence = Sequence(text, extra, len(self.groups))
        table, tokens = sequence.table, sequence.tokens
        before = self.allocator.counts()
        hit = self.allocator.match(table, tokens)
        assert hit == self.longest_hit(tokens, extra)  # A9
        assert self.allocator.counts() == before
        could = self.allocator.can_allocate(table, len(tokens), num_hit_tokens=hit)
        done = self.allocator.allocate(table, len(tokens), num_hit_tokens=hit)
        assert could == done
        if not done:
            assert self.allocator.counts() == before  # A2
            assert not any(table.groups)
            return sequence
        sequence.committed = hit
        self.check_readable(sequence, hit)
        self.write(sequence, len(tokens))
        self.alive.append(sequence)
        return sequence

    @rule(sequence=sequences, steps=st.sampled_from([1, 2, 3, 6, 20]), is_trimmed=st.booleans())
    def commit(self, sequence: Sequence, steps: int, is_trimmed: bool) -> None:
        if sequence not in self.alive:
            return
        sequence.committed = min(len(sequence.tokens), sequence.committed + steps)
        self.allocator.commit(sequence.table, sequence.tokens, sequence.committed)
        if is_trimmed:
            self.allocator.trim(sequence.table, sequence.committed)
            self.check_trimmed(sequence)

    def check_trimmed(self, sequence: Sequence) -> None:
        """Everything out of reach is given back, and nothing else."""
        for group, ids in zip(self.groups, sequence.table.groups, strict=True):
            first = first_needed(group, sequence.committed)
            assert not any(ids[:first])
            assert all(ids[first:])

    @rule(sequence=sequences)
    def grow(self, sequence: Sequence) -> None:
        if sequence not in self.alive:
            return
        before = self.allocator.counts()
        if self.allocator.allocate(sequence.table, len(sequence.tokens) + 1):
            sequence.tokens.append(len(sequence.tokens) % 5)
            self.write(sequence, len(sequence.tokens))
        else:
            assert self.allocator.counts() == before  # A2

    @rule(sequence=sequences, drop=st.integers(1, 4))
    def roll_back(self, sequence: Sequence, drop: int) -> None:
        """Only uncommitted tokens are ever rolled back (A7)."""
        if sequence in self.alive:
            keep = max(sequence.committed, len(sequence.tokens) - drop, 1)
            del sequence.tokens[keep:]
            self.allocator.truncate(sequence.table, keep)
            self.write(sequence, len(sequence.tokens))

    @rule(sequence=consumes(sequences))
    def free(self, sequence: Sequence) -> None:
        self.allocator.free(sequence.table)
        self.allocator.free(sequence.table)  # twice is fine
        assert not any(sequence.table.groups)
        if sequence in self.alive:
            self.alive.remove(sequence)

    @rule()
    def reset(self) -> None:
        assert self.allocator.reset_cache() == (not self.alive)

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def A1_A3_counts(self) -> None:
        counts = self.allocator.counts()
        held = [block for one in self.alive for ids in one.table.groups for block in ids if block]
        assert counts.free + counts.used + counts.cached == counts.total == BLOCKS
        assert counts.used == len(set(held))
        for block in set(held):
            assert self.allocator._references[block] == held.count(block)

    @invariant()
    def A5_what_is_within_reach_keeps_its_content(self) -> None:
        for sequence in self.alive:
            self.check_readable(sequence, sequence.committed)

    @invariant()
    def no_block_is_in_two_groups(self) -> None:
        by_group = [
            {block for one in self.alive for block in one.table.groups[group] if block}
            for group in range(len(self.groups))
        ]
        assert sum(map(len, by_group)) == len(set().union(*by_group))

    @invariant()
    def A7_named_blocks_hold_committed_tokens_alone(self) -> None:
        for block, name in enumerate(self.allocator._name_of):
            if name is not None:
                (group, tokens, extra), key = self.content[block], name[0]
                assert group == name[1]
                assert len(tokens) % SIZE == 0
                assert (tokens[-SIZE:], extra) == (key.tokens, key.extra)

    def teardown(self) -> None:
        for sequence in self.alive:
            self.allocator.free(sequence.table)
        counts = self.allocator.counts()
        assert counts.free + counts.cached == counts.total  # A6


GROUPS = {
    "full-window": (FULL, WINDOW),
    "full-state": (FULL, STATE),
    "state-full": (STATE, FULL),
    "window": (WINDOW,),
    "state": (STATE,),
    "two-windows": (WINDOW, WIDE),
    "window-state": (WINDOW, STATE),
    "all-three": (FULL, WIDE, STATE),
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_groups(groups: tuple[CacheGroup, ...]) -> None:
    machine = type("Machine", (GroupsMachine,), {"groups": groups})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=40, stateful_step_count=30, deadline=None)
    )
