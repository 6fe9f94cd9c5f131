"""What an allocator tells its order of eviction, and whether it obeys it.

An order that counts hits, or keeps what a request asked for, can only be as good as what it is
told. Here an order takes down every call, and gives blocks away in a way that nobody would guess.

Knows the interfaces. Does not know how any allocator keeps its blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.interfaces.allocator import AllocatorContext, BlockTable
from octavo.interfaces.eviction import Eviction
from octavo.sampling_params import SamplingParams
from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Hashable

    from octavo.testing.allocator_room import Build

_SIZE = 3
_TOKENS = list(range(100, 112))


class TakenDown(Eviction):
    """Takes down the calls since it was last asked, and evicts the one in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int, SamplingParams | None]] = []
        self.contents: dict[int, Hashable] = {}
        self._blocks: list[int] = []

    def add(self, block_id: int) -> None:
        """Take down a candidate."""
        self._blocks.append(block_id)
        self.calls.append(("add", block_id, None))

    def remove(self, block_id: int) -> None:
        """Take down that it is none any more."""
        self._blocks.remove(block_id)
        self.calls.append(("remove", block_id, None))

    def pop(self) -> int:
        """Give the one in the middle."""
        block_id = self._blocks.pop(len(self._blocks) // 2)
        self.calls.append(("pop", block_id, None))
        return block_id

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self._blocks)

    def on_cached(self, block_id: int, content: Hashable, params: SamplingParams | None) -> None:
        """Take down a block's content."""
        self.contents[block_id] = content
        self.calls.append(("on_cached", block_id, params))

    def on_hit(self, block_id: int, params: SamplingParams | None) -> None:
        """Take down a hit."""
        self.calls.append(("on_hit", block_id, params))

    def told(self) -> list[tuple[str, int, SamplingParams | None]]:
        """Return the calls since this was last asked, sorted, as any order of them will do."""
        calls, self.calls = self.calls, []
        return sorted(calls, key=lambda one: one[:2])


def _context(order: Eviction) -> AllocatorContext:
    return AllocatorContext(
        num_blocks=13,
        block_size=_SIZE,
        max_model_len=64,
        enable_prefix_caching=True,
        eviction=order,
    )


class _Told:
    """An allocator, and what its order of eviction is told."""

    def __init__(self, build: Build) -> None:
        self.order = TakenDown()
        self.allocator = build(_context(self.order))

    def table_of(self, tokens: list[int], name: str) -> BlockTable:
        """Compute and commit tokens of a request of its own parameters."""
        table = replace(BlockTable.of(1), params=SamplingParams(stop=name))
        hit = self.allocator.match(table, tokens)
        if not self.allocator.allocate(table, len(tokens), num_hit_tokens=hit):
            raise PromiseBroken(f"{len(tokens)} tokens do not fit {self.allocator.counts()}")
        self.allocator.commit(table, tokens, len(tokens))
        return table

    def expect(self, what: str, *calls: tuple[str, list[int], SamplingParams | None]) -> None:
        """Raise PromiseBroken unless these calls were made since this was asked before."""
        told = self.order.told()
        every = ((name, one, params) for name, ids, params in calls for one in ids)
        wanted = sorted(every, key=lambda one: one[:2])
        if told != wanted:
            raise PromiseBroken(
                f"{what}: the order of eviction is told {_shown(told)}, not {_shown(wanted)}"
            )


def check_the_order_is_told(build: Build) -> None:
    """Of each block that is cached, hit, left by its last owner, or hit after that."""
    one = _Told(build)
    first = one.table_of(_TOKENS, "first")
    ids = list(first.block_ids)
    one.expect("4 blocks are filled", ("on_cached", ids, first.params))
    second = one.table_of([*_TOKENS, 1], "second")
    one.expect("another request hits them", ("on_hit", ids, second.params))
    one.allocator.free(first)
    one.expect("one of two owners frees them")
    one.allocator.free(second)
    one.expect("the last owner frees them", ("add", ids, None))
    third = one.table_of([*_TOKENS, 1], "third")
    one.expect("a third hits them", ("remove", ids, None), ("on_hit", ids, third.params))
    one.allocator.free(third)
    one.expect("the third frees them", ("add", ids, None))


def check_contents_are_told(build: Build) -> None:
    """The same for the same tokens at any time, and others for others."""
    one = _Told(build)
    contents = []
    for name in ("first", "again"):
        table = one.table_of(_TOKENS, name)
        contents.append([one.order.contents[block_id] for block_id in table.block_ids])
        one.allocator.free(table)
        one.allocator.reset_cache()
    if contents[0] != contents[1]:
        raise PromiseBroken("the same tokens are computed again, and have another content")
    if len(set(contents[0])) != len(_TOKENS) // _SIZE:
        raise PromiseBroken("blocks of different tokens have the same content")


def check_the_order_is_obeyed(build: Build) -> None:
    """What it gives away is taken, one block at a time, and nothing else is lost."""
    order = TakenDown()
    allocator = build(_context(order))
    for number in range(4):
        table = BlockTable.of(1)
        tokens = [number] * 3 * _SIZE
        allocator.allocate(table, len(tokens))
        allocator.commit(table, tokens, len(tokens))
        allocator.free(table)
    order.told()
    table = BlockTable.of(1)
    for count in range(1, 6):
        allocator.allocate(table, count * _SIZE)
        popped = [block_id for name, block_id, _ in order.told() if name == "pop"]
        if popped != table.block_ids[count - 1 :]:
            raise PromiseBroken(
                f"12 blocks are cached, and one is needed: the order of eviction gave {popped} "
                f"away, and {table.block_ids[count - 1 :]} was taken"
            )


def _shown(calls: list[tuple[str, int, SamplingParams | None]]) -> str:
    return ", ".join(f"{name}({one})" for name, one, _ in calls) or "nothing"
