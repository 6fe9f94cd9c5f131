"""A model of the memory that an allocator hands out: what each block holds.

It writes into each block what a model's layers would leave there: a wrong hit, trimmed window,
eviction or rolled-back token shows as wrong content. What was named is remembered: so do misses.

Knows the interface. Does not know how any allocator keeps its blocks.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from octavo.interfaces.allocator import BlockTable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from octavo.interfaces.allocator import Allocator
    from octavo.interfaces.executor import CacheGroup
    from octavo.testing.searching import Story

SIZE = 3
MAX_LEN = 64
#: equal hashes of numbers that are not equal, in CPython: their difference is its modulus
_MODULUS = 2**61 - 1


class Salt(NamedTuple):
    """What must be equal beside the tokens; all salts have one hash."""

    text: str

    def __hash__(self) -> int:
        return 7


class Act(NamedTuple):
    """One call. `which` picks one of those alive, `number` is a length or a count."""

    action: str
    which: int
    number: int
    change: int
    extra: str | None


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's side: its tokens, its table, how much is committed, how many blocks named."""

    name: str
    tokens: list[int]
    table: BlockTable
    committed: int = 0
    num_named: int = 0

    def content(self, index: int, end: int) -> tuple[object, ...]:
        """Return what block `index` holds when the sequence is written up to `end`."""
        return tuple(self.tokens[: min(end, (index + 1) * SIZE)]), self.table.extra


def first_needed(group: CacheGroup, position: int) -> int:
    """Return the first block that a token at `position` reads."""
    return 0 if group.reach is None else max(0, position - group.reach) // SIZE


@dataclass(slots=True)
class Memory:
    """An allocator under test, and what its blocks hold."""

    allocator: Allocator
    story: Story
    is_sharing: bool
    evicted: list[int]
    alive: list[Sequence] = field(default_factory=list)
    content: dict[int, tuple[object, ...]] = field(default_factory=dict)
    #: the block of each named content: group, tokens of the whole prefix, extra
    named: dict[tuple[object, ...], int] = field(default_factory=dict)
    num_started: int = 0

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        """Return the groups of the model's layers."""
        return self.allocator.context.groups

    def act(self, one: Act) -> None:
        """Make one call, and look at what came of it."""
        if one.action == "start":
            self.start(one)
        elif one.action == "reset":
            self.reset()
        elif self.alive:
            sequence = self.alive[one.which % len(self.alive)]
            calls: dict[str, Callable[[Sequence, Act], None]] = {
                "commit": self.commit, "grow": self.grow, "roll_back": self.roll_back,
                "free": self.free,
            }  # fmt: skip
            calls[one.action](sequence, one)
        self.look()

    def start(self, one: Act) -> None:
        """Start a prefix of one text, or of one that differs from it in one place."""
        tokens = [place % 5 for place in range(one.number)]
        if one.change < one.number:  # another token, of the same hash
            tokens[one.change] += _MODULUS
        extra = Salt(one.extra) if one.extra else None
        name, self.num_started = f"s{self.num_started}", self.num_started + 1
        sequence = Sequence(name, tokens, BlockTable.of(len(self.groups), extra))
        before = self.allocator.counts()
        hit = self.allocator.match(sequence.table, tokens)
        self.story.tell(f"match {name}: {_shown(tokens)}, extra {one.extra}: a hit of {hit}")
        self.story.see("A10", self.allocator.counts() == before, "match changed the counts")
        self._look_at_hit(sequence, hit)
        if self._allocate(sequence, len(tokens), hit):
            sequence.committed = hit
            sequence.num_named = hit // SIZE
            self.alive.append(sequence)
            self.check_readable(sequence, hit, "A4")
            self.write(sequence, len(tokens))

    def _look_at_hit(self, sequence: Sequence, hit: int) -> None:
        see = self.story.see
        see("A8", hit < len(sequence.tokens), f"a hit of {hit} leaves no token to compute")
        see("A4", hit % SIZE == 0, f"a hit of {hit} is no whole blocks of {SIZE}")
        if not self.is_sharing:
            see("A4", hit == 0, f"a hit of {hit}, where nothing is to be shared")
            return
        longest = self.longest_hit(sequence.tokens, sequence.table.extra)
        see("A9", hit >= longest, f"a hit of {hit}, where {longest} tokens are cached")

    def _is_named(self, sequence: Sequence, hit: int) -> bool:
        return all(
            (number, tuple(sequence.tokens[: (index + 1) * SIZE]), sequence.table.extra)
            in self.named
            for number, group in enumerate(self.groups)
            for index in range(first_needed(group, hit), hit // SIZE)
        )

    def longest_hit(self, tokens: list[int], extra: Hashable) -> int:
        """Return the longest hit among all that was named and not evicted."""
        sequence = Sequence("", tokens, BlockTable.of(len(self.groups), extra))
        hits = [end for end in range(SIZE, len(tokens), SIZE) if self._is_named(sequence, end)]
        return max(hits, default=0)

    def _allocate(self, sequence: Sequence, num_tokens: int, hit: int = 0) -> bool:
        """Allocate, and see that it was foretold, and that a failure changes nothing."""
        table, before = sequence.table, self.allocator.counts()
        kept = copy.deepcopy((table.groups, table.num_trimmed, table.num_hashed_blocks))
        could = self.allocator.can_allocate(table, num_tokens, num_hit_tokens=hit)
        self.story.see("A10", self.allocator.counts() == before, "can_allocate changed the counts")
        done = self.allocator.allocate(table, num_tokens, num_hit_tokens=hit)
        self.story.tell(
            f"allocate {sequence.name} to {num_tokens} tokens, hit {hit}: "
            + (f"blocks {table.groups}" if done else "no room")
        )
        self.story.see("A10", could == done, f"can_allocate said {could}, allocate {done}")
        if not done:
            is_same = kept == (table.groups, table.num_trimmed, table.num_hashed_blocks)
            self.story.see("A2", is_same, "a failed allocation changed the table")
            self.story.see("A2", self.allocator.counts() == before, "and changed the counts")
        has_room = len(kept[0][0]) * SIZE >= num_tokens
        self.story.see("A15", done or not has_room, f"no room for {num_tokens} of {kept[0]}")
        self.look_at_length(sequence, num_tokens, is_exact=done)
        for ids in table.groups if done else ():
            self.story.see(
                "A11", len(ids) * SIZE >= num_tokens, f"{len(ids)} blocks for {num_tokens} tokens"
            )
        return done

    def look_at_length(self, sequence: Sequence, num_tokens: int, *, is_exact: bool = True) -> None:
        """See that no group holds more blocks than tokens need, where blocks come on demand."""
        most = max(map(len, sequence.table.groups)) if self.is_sharing and is_exact else 0
        is_kept = most <= -(-num_tokens // SIZE)
        self.story.see("A15", is_kept, f"{most} blocks for {num_tokens} tokens")

    def write(self, sequence: Sequence, end: int) -> None:
        """Compute the positions from the committed one to `end`."""
        for index in range(sequence.committed // SIZE, -(-end // SIZE)):
            for group, ids in enumerate(sequence.table.groups):
                self.story.see("A11", ids[index], f"{sequence.name} is to write the null block")
                self.content[ids[index]] = (group, *sequence.content(index, end))

    def check_readable(self, sequence: Sequence, position: int, number: str) -> None:
        """What a token at `position` reads is there, in every group."""
        for place, (group, ids) in enumerate(zip(self.groups, sequence.table.groups, strict=True)):
            for index in range(first_needed(group, position), position // SIZE):
                held = self.content.get(ids[index])
                wanted = (place, *sequence.content(index, (index + 1) * SIZE))
                self.story.see(
                    number,
                    held == wanted,
                    f"block {ids[index]} of {sequence.name} holds {held}, not {wanted}",
                )

    def commit(self, sequence: Sequence, one: Act) -> None:
        """Commit some tokens, and trim or not."""
        sequence.committed = min(len(sequence.tokens), sequence.committed + one.number)
        self.story.tell(f"commit {sequence.name} to {sequence.committed}")
        self.allocator.commit(sequence.table, sequence.tokens, sequence.committed)
        num_full = sequence.committed // SIZE
        for place, ids in enumerate(sequence.table.groups):
            for index in range(sequence.num_named, num_full):
                if ids[index] and self.is_sharing:
                    name = (place, *sequence.content(index, sequence.committed))
                    self.named.setdefault(name, ids[index])
        sequence.num_named = num_full
        if one.change % 2:
            self.trim(sequence)

    def trim(self, sequence: Sequence) -> None:
        """Trim; what is out of reach is given back, and nothing else."""
        self.story.tell(f"trim {sequence.name} to {sequence.committed}")
        self.allocator.trim(sequence.table, sequence.committed)
        for group, ids in zip(self.groups, sequence.table.groups, strict=True):
            first = first_needed(group, sequence.committed)
            self.story.see("A13", not any(ids[:first]), f"out of reach is kept: {ids[:first]}")
            self.story.see("A13", all(ids[first:]), f"within reach is gone: {ids[first:]}")

    def grow(self, sequence: Sequence, one: Act) -> None:
        """Write some more tokens, if there is room."""
        more = [place % 5 for place in range(len(sequence.tokens), len(sequence.tokens) + 4)]
        more = more[: 1 + one.number % 4]
        end = len(sequence.tokens) + len(more)
        if end <= MAX_LEN and self._allocate(sequence, end):
            sequence.tokens += more
            self.write(sequence, end)

    def roll_back(self, sequence: Sequence, one: Act) -> None:
        """Take drafts back: tokens that nobody has committed."""
        keep = max(sequence.committed, len(sequence.tokens) - 1 - one.number % 4, 1)
        del sequence.tokens[keep:]
        self.story.tell(f"truncate {sequence.name} to {keep}")
        self.allocator.truncate(sequence.table, keep)
        self.look_at_length(sequence, keep)
        self.write(sequence, len(sequence.tokens))

    def free(self, sequence: Sequence, one: Act) -> None:
        """Give all back; sometimes twice."""
        self.story.tell(f"free {sequence.name}")
        for _ in range(1 + one.number % 2):
            self.allocator.free(sequence.table)
        self.story.see(
            "A6", not any(sequence.table.groups), f"a freed table holds {sequence.table.groups}"
        )
        self.alive.remove(sequence)

    def reset(self) -> None:
        """Forget what is cached."""
        done = self.allocator.reset_cache()
        self.story.tell(f"reset_cache: {done}")
        alive = self.alive
        self.story.see("A5", done != bool(alive), f"reset_cache says {done} of {len(alive)} alive")
        self.named.clear()
        counts = self.allocator.counts()
        self.story.see("A5", counts.cached == 0, f"{counts.cached} blocks are cached after a reset")

    def look(self) -> None:
        """See what holds after every call."""
        if self.evicted:
            gone = set(self.evicted)
            self.named = {name: block for name, block in self.named.items() if block not in gone}
            self.evicted.clear()
        see, counts = self.story.see, self.allocator.counts()
        held = [block for one in self.alive for ids in one.table.groups for block in ids if block]
        is_sum = counts.free + counts.used + counts.cached == counts.total
        see("A1", is_sum, f"free + used + cached is not the total: {counts}")
        is_all = counts.total == self.allocator.context.num_blocks - 1
        see("A1", is_all, f"the total is {counts.total}")
        see("A1", min(counts.free, counts.used, counts.cached) >= 0, f"negative: {counts}")
        see(
            "A3",
            counts.used == len(set(held)),
            f"{counts.used} blocks are used, and {len(set(held))} have owners",
        )
        if not self.is_sharing:
            see("A3", len(held) == len(set(held)), "a block has two owners")
            see("A1", counts.cached == 0, f"{counts.cached} are cached, where nothing is")
        for one in self.alive:
            self.check_readable(one, one.committed, "A5")

    def end(self) -> None:
        """Free all, and see that all is free."""
        for sequence in self.alive:
            self.allocator.free(sequence.table)
        self.alive.clear()
        used = self.allocator.counts().used
        self.story.see("A6", not used, f"all are freed, and {used} blocks are used")
        every = [BlockTable.of(len(self.groups))]
        is_full = len(self.groups) == 1 and self.groups[0].reach is None
        room = self.allocator.capacity_tokens if is_full else SIZE
        self.story.see(
            "A6", self.allocator.allocate(every[0], room), f"all are freed, and {room} do not fit"
        )


def _shown(tokens: list[int]) -> str:
    """Return tokens as text; those of another hash's kin as `1'`."""
    return " ".join(f"{t % _MODULUS}'" if t >= _MODULUS else str(t) for t in tokens)
