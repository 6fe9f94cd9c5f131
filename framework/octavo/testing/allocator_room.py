"""Allocators with a past that is made for one question: what fits, what is hit, what is kept.

Random traces seldom meet a cache that is full to the block, or a table that is used twice. Here
each case is written out, for every amount of room.

Knows the interface. Does not know how any allocator keeps its blocks.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from octavo.interfaces.allocator import Allocator, AllocatorContext, BlockTable
from octavo.testing.allocator_traces import GROUPS
from octavo.testing.invariants import PromiseBroken
from octavo.testing.subjects import stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octavo.interfaces.executor import CacheGroup

    Build = Callable[[AllocatorContext], Allocator]

_SIZE = 3
_PROMPT = list(range(100, 124))
_NUM_CACHED = 12


def first_read(group: CacheGroup, position: int, size: int = _SIZE) -> int:
    """Return the first block that a token at `position` reads."""
    return 0 if group.reach is None else max(0, position - group.reach) // size


class Room:
    """An allocator of `num_blocks` blocks, and what is asked of it."""

    def __init__(
        self,
        build: Build,
        groups: tuple[CacheGroup, ...],
        num_blocks: int,
        *,
        ahead: int | None = None,
        size: int = _SIZE,
    ) -> None:
        self.groups = groups
        self.size = size
        self.ahead = ahead
        self.allocator = build(
            AllocatorContext(
                num_blocks=num_blocks + 1,
                block_size=size,
                max_model_len=64,
                enable_prefix_caching=True,
                eviction=stock("eviction", "lru"),
                groups=groups,
                max_tokens_ahead=ahead,
            )
        )

    def table(self) -> BlockTable:
        """Return an empty table."""
        return BlockTable.of(len(self.groups))

    def fill(self, table: BlockTable, tokens: list[int]) -> BlockTable:
        """Compute and commit tokens in a table. Raises PromiseBroken when they do not fit."""
        if not self.allocator.allocate(table, len(tokens)):
            raise PromiseBroken(f"{len(tokens)} tokens do not fit {self.allocator.counts()}")
        self.allocator.commit(table, tokens, len(tokens))
        return table

    def fresh_and_kept(self, num_tokens: int, hit: int) -> tuple[int, list[int]]:
        """Return the blocks beyond a hit, of one group, and those of the hit that are read."""
        num_hits = hit // self.size
        kept = [num_hits - first_read(group, hit, self.size) for group in self.groups]
        return -(-num_tokens // self.size) - num_hits, kept

    def num_held_new(self, num_tokens: int, hit: int, *, is_revived: bool) -> int:
        """Return how many blocks a request takes beyond its hit, as it holds no more at once.

        What it gives back of its hit is of use only where nobody else holds that as well.
        """
        fresh, kept = self.fresh_and_kept(num_tokens, hit)
        most = self.allocator.context.demand.most(-(-num_tokens // self.size))
        pairs = zip(kept if is_revived else [0] * len(kept), most, strict=True)
        return sum(max(0, min(one + fresh, limit) - one) for one, limit in pairs)

    def runs(self, table: BlockTable, tokens: list[int], hit: int) -> bool:
        """Run a request step by step, and return whether there was room at each."""
        done = hit
        while done < len(tokens):
            end = len(tokens) if self.ahead is None else min(len(tokens), done + self.ahead)
            taken = 0 if table.num_blocks else hit
            if not self.allocator.allocate(table, end, num_hit_tokens=taken):
                return False
            self.allocator.commit(table, tokens, end)
            self.allocator.trim(table, end)
            done = end
        return True


def _rooms(build: Build) -> Iterator[tuple[Room, BlockTable, int, bool, str]]:
    """Yield allocators of all sizes, each with a table that has matched.

    With them come the hit, whether it is of nobody alive, and all of this as text.
    """
    for (name, groups), ahead, num_hit in product(
        GROUPS.items(), (None, 1, 4), (0, 6, _NUM_CACHED)
    ):
        least = max(1, num_hit // _SIZE * len(groups))
        for num_blocks, is_alive in product(
            range(least, len(_PROMPT) // _SIZE * len(groups) + 2), (False, True)
        ):
            room = Room(build, groups, num_blocks, ahead=ahead)
            if num_hit:
                owner = room.fill(room.table(), _PROMPT[:num_hit])
                if not is_alive:
                    room.allocator.free(owner)
            table = room.table()
            hit = room.allocator.match(table, _PROMPT)
            of_whom = "somebody alive" if is_alive else "the cache"
            told = (
                f"{num_blocks} blocks of {_SIZE} tokens, {name}, {ahead} tokens ahead: a request "
                f"of {len(_PROMPT)} tokens that hits {hit} of {of_whom}"
            )
            if hit != num_hit:
                raise PromiseBroken(f"{told}, where {num_hit} are cached")
            yield room, table, hit, not is_alive, told


def check_admission(build: Build) -> None:
    """What is admitted runs step by step; what there is room for is admitted."""
    for room, table, hit, is_revived, told in _rooms(build):
        allocator, num_tokens = room.allocator, len(_PROMPT)
        counts = allocator.counts()
        fresh, kept = room.fresh_and_kept(num_tokens, hit)
        left = counts.free + counts.cached - is_revived * sum(kept)
        asked = fresh * len(room.groups)
        if allocator.can_allocate(table, num_tokens, num_hit_tokens=hit) != (asked <= left):
            raise PromiseBroken(f"{told} needs {asked} blocks of {left}: can_allocate is wrong")
        is_in = allocator.can_admit(table, num_tokens, num_hit_tokens=hit)
        needed = room.num_held_new(num_tokens, hit, is_revived=is_revived)
        if not is_in and needed <= left:
            raise PromiseBroken(f"{told} needs {needed} blocks of {left}, and is not admitted")
        if is_in and not room.runs(table, _PROMPT, hit):
            raise PromiseBroken(f"{told} is admitted, and does not run with {left} blocks")


def check_hits_have_no_gaps(build: Build) -> None:
    """After any number of evictions, a hit has all blocks within the reach of the next token."""
    for name in ("a window", "two windows", "full and window"):
        groups = GROUPS[name]
        for num_evicted, length in product(range(5), range(4, _NUM_CACHED + 2)):
            room = Room(build, groups, 4 * len(groups))
            owner = room.fill(room.table(), _PROMPT[:_NUM_CACHED])
            room.allocator.trim(owner, _NUM_CACHED)
            room.allocator.free(owner)
            if num_evicted:
                room.fill(room.table(), [7] * _SIZE * num_evicted)
            table = room.table()
            hit = room.allocator.match(table, _PROMPT[:length])
            if not room.allocator.allocate(table, hit, num_hit_tokens=hit):
                continue
            for group, ids in zip(groups, table.groups, strict=True):
                if not all(ids[first_read(group, hit) :]):
                    raise PromiseBroken(f"{name}: a hit of {hit} tokens has a gap: {ids}")


def check_hits_go_on_behind_gaps(build: Build) -> None:
    """Blocks that nobody reads any more go first, and a prefix is hit without them."""
    for name in ("a window", "two windows"):
        groups = GROUPS[name]
        room = Room(build, groups, _NUM_CACHED // _SIZE * len(groups))
        owner = room.fill(room.table(), _PROMPT[:_NUM_CACHED])
        room.allocator.trim(owner, _NUM_CACHED)
        num_unread = min(first_read(group, _NUM_CACHED) for group in groups)
        room.allocator.free(owner)
        other = room.fill(room.table(), [7] * _SIZE * num_unread)
        room.allocator.free(other)
        hit = room.allocator.match(room.table(), _PROMPT)
        if num_unread and hit != _NUM_CACHED:
            raise PromiseBroken(
                f"{name}: of {_NUM_CACHED} tokens the blocks of the first {num_unread * _SIZE}, "
                f"which nobody reads any more, are evicted, and {hit} are hit"
            )


def check_no_second_hit(build: Build) -> None:
    """A table that has blocks takes a hit no more."""
    for name, groups in GROUPS.items():
        room = Room(build, groups, 40)
        room.fill(room.table(), _PROMPT[:_NUM_CACHED])
        table = room.table()
        hit = room.allocator.match(table, _PROMPT)
        for num_tokens in (hit + 1, hit + 5):
            room.allocator.allocate(table, num_tokens, num_hit_tokens=hit)
            lengths = [len(ids) for ids in table.groups]
            if lengths != [-(-num_tokens // _SIZE)] * len(groups):
                raise PromiseBroken(f"{name}: {num_tokens} tokens, hit {hit}: {lengths} blocks")


def check_tables_used_again(build: Build) -> None:
    """What is computed in a table that was freed, or taken back, is found under its own tokens."""
    for (name, groups), keep in product(GROUPS.items(), (0, 4, 6)):
        room = Room(build, groups, 60)
        table = room.fill(room.table(), _PROMPT[:_NUM_CACHED])
        room.allocator.trim(table, keep)
        if not keep:
            room.allocator.trim(table, _NUM_CACHED)
        if keep:
            room.allocator.truncate(table, keep)
        else:
            room.allocator.free(table)
        tokens = [*_PROMPT[:keep], *range(_NUM_CACHED - keep)]
        room.fill(table, tokens)
        hit = room.allocator.match(room.table(), [*tokens, 1])
        if hit != _NUM_CACHED:
            raise PromiseBroken(
                f"{name}: a table is taken back to {keep} tokens and filled with others: of "
                f"{_NUM_CACHED} that are committed {hit} are hit"
            )
        room.allocator.trim(table, _NUM_CACHED)
        for group, ids in zip(groups, table.groups, strict=True):
            if any(ids[: first_read(group, _NUM_CACHED)]):
                raise PromiseBroken(
                    f"{name}: a table is taken back to {keep} tokens and filled with others: "
                    f"trimmed to {_NUM_CACHED} it still holds {ids}"
                )


def check_reset_forgets(build: Build) -> None:
    """After a reset nobody hits what was computed before, nor what is still in use."""
    for name, groups in GROUPS.items():
        room = Room(build, groups, 40)
        owner = room.fill(room.table(), _PROMPT[:_NUM_CACHED])
        room.allocator.reset_cache()
        for state in ("in use", "freed"):
            hit = room.allocator.match(room.table(), _PROMPT)
            if hit:
                raise PromiseBroken(f"{name}: after a reset {hit} tokens are hit, {state}")
            room.allocator.free(owner)


def check_trim_of_any_size(build: Build) -> None:
    """Whatever the blocks' size, what the next token reads is kept, and no more."""
    for (name, groups), size in product(GROUPS.items(), (1, 2, 5)):
        room = Room(build, groups, 80, size=size)
        table = room.fill(room.table(), _PROMPT[:16])
        for position in range(1, 17):
            room.allocator.trim(table, position)
            for group, ids in zip(groups, table.groups, strict=True):
                first = first_read(group, position, size)
                if any(ids[:first]) or not all(ids[first:]):
                    raise PromiseBroken(
                        f"{name}, blocks of {size}, trimmed to {position} tokens: {ids}"
                    )
