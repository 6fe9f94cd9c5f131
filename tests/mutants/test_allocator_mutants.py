"""Allocators and eviction orders that are wrong on purpose: each breaks what it is listed with."""

from __future__ import annotations

import random

import pytest

from mutants import assert_killed, name_of
from octavo.interfaces.allocator import BlockCounts
from octavo_plugins.allocators.contiguous import ContiguousAllocator
from octavo_plugins.allocators.paged import PagedAllocator
from octavo_plugins.evictions.lru import Lru


class Paged(PagedAllocator):
    offers = ("prefix-caching", "cache-groups")


class CountsTheNullBlock(Paged):
    def counts(self):
        one = super().counts()
        return BlockCounts(one.free + 1, one.used, one.cached, one.total + 1)


class LeaksOnTruncate(Paged):
    """Drops the last block of what is rolled back without giving it back."""

    def truncate(self, table, num_tokens):
        if 0 < num_tokens < (table.num_blocks - 1) * self.block_size:
            for ids in table.groups:
                ids.pop()
        super().truncate(table, num_tokens)


class TakesBeforeItLooks(Paged):
    """Takes what there is, and then finds that it does not suffice."""

    def allocate(self, table, num_tokens, *, num_hit_tokens=0):
        if not self.can_allocate(table, num_tokens, num_hit_tokens=num_hit_tokens) and self._free:
            block_id = self._take()
            self._references[block_id] = 1
            table.block_ids.append(block_id)
            return False
        return super().allocate(table, num_tokens, num_hit_tokens=num_hit_tokens)


class SharesWithoutCounting(Paged):
    """A second owner of a block is not counted: the first that goes frees it."""

    def allocate(self, table, num_tokens, *, num_hit_tokens=0):
        done = super().allocate(table, num_tokens, num_hit_tokens=num_hit_tokens)
        for block_id in table.block_ids[: num_hit_tokens // self.block_size]:
            self._references[block_id] = min(self._references[block_id], 1)
        return done


class IgnoresSalt(Paged):
    def _key(self, parent, tokens, table):
        extra, table.extra = table.extra, None
        key = super()._key(parent, tokens, table)
        table.extra = extra
        return key


class _HashedKey(tuple):
    """Equal when the hashes are."""

    __slots__ = ()
    parent = extra = None

    @property
    def tokens(self):
        return self[1]

    def __eq__(self, other):
        return hash(self) == hash(other)

    def __hash__(self):
        return tuple.__hash__(self)


class TrustsHashes(Paged):
    def _key(self, parent, tokens, table):
        return _HashedKey((parent, tuple(tokens), table.extra))


class ForgetsTheParent(Paged):
    """A block is named by its own tokens, whatever stands before it."""

    def _key(self, parent, tokens, table):
        return super()._key(None, tokens, table)


class EvictsWhatIsUsed(Paged):
    """Offers blocks for eviction when they are named, not when they are released."""

    def commit(self, table, token_ids, num_tokens):
        before = table.num_hashed_blocks
        super().commit(table, token_ids, num_tokens)
        for ids in table.groups:
            for block_id in ids[before : table.num_hashed_blocks]:
                if block_id and self._name_of[block_id] and self._references[block_id] == 1:
                    self._references[block_id] = 0
                    self._eviction.add(block_id)

    def _release(self, block_id):
        if block_id and self._references[block_id] > 0:
            super()._release(block_id)


class KeepsOneBack(Paged):
    """The first block of a freed table is never free again."""

    def free(self, table):
        for ids in table.groups:
            if len(ids) > 4:
                del ids[0]
        super().free(table)


class HashesWhatIsComputed(Paged):
    """Names blocks by what was written, committed or not."""

    def commit(self, table, token_ids, num_tokens):
        super().commit(table, token_ids, min(len(token_ids), num_tokens + 1))


class HitsEverything(Paged):
    """Gives the last token of a prompt as cached, too."""

    def match(self, table, token_ids):
        return super().match(table, [*token_ids, 0])


class NeverHits(Paged):
    def match(self, table, token_ids):
        table.keys = []
        return 0


class StopsAtTheFirstGap(Paged):
    """Wants every block of every group, although a window needs the last ones alone."""

    def _longest(self, found):
        num_hits = 0
        for blocks in found:
            if not all(blocks):
                break
            num_hits += 1
        return num_hits


class IgnoresWindows(Paged):
    """Takes a hit of the full group for one of all."""

    def _longest(self, found):
        return len(found)


class PromisesTooMuch(Paged):
    def can_allocate(self, table, num_tokens, *, num_hit_tokens=0):
        return super().can_allocate(table, num_tokens - 1, num_hit_tokens=num_hit_tokens)


class HandsOutBlockZero(Paged):
    def __init__(self, options, context, **others):
        super().__init__(options, context, **others)
        self._free[0] = 0


class BoastsOfItsCapacity(Paged):
    @property
    def capacity_tokens(self):
        return super().capacity_tokens + self.block_size


class TrimsTooFar(Paged):
    def _first_needed(self, reach, num_tokens):
        first = super()._first_needed(reach, num_tokens)
        return first + 1 if first and reach and reach > 4 else first


class NeverTrims(Paged):
    def trim(self, table, num_tokens):
        pass


class TakesAnyModel(ContiguousAllocator):
    """Refuses no model with several groups, and then serves the first."""

    def __init__(self, options, context):
        object.__setattr__(self, "context", context)
        one = type(context)(
            num_blocks=context.num_blocks, block_size=context.block_size,
            max_model_len=context.max_model_len, enable_prefix_caching=False,
            eviction=context.eviction,
        )  # fmt: skip
        super().__init__(options, one)


class SwapsBlocks(Paged):
    """Gives a request that grows its blocks in another order."""

    def allocate(self, table, num_tokens, *, num_hit_tokens=0):
        done = super().allocate(table, num_tokens, num_hit_tokens=num_hit_tokens)
        if done and len(table.block_ids) == 3:
            table.block_ids.reverse()
        return done


class KeepsHitsToItself(Paged):
    """Tells no order of eviction that a block was found."""

    def __init__(self, options, context, **others):
        super().__init__(options, context, **others)
        self._eviction.on_hit = lambda *_: None


class TellsOfNobody(Paged):
    """Passes on what is cached, and not whose parameters it has."""

    def commit(self, table, token_ids, num_tokens):
        params, table.params = table.params, None
        super().commit(table, token_ids, num_tokens)
        table.params = params


class KnowsBetter(Paged):
    """Evicts the lowest of its candidates, whatever the order says."""

    def _evict(self):
        given = self._eviction.pop()
        others = [one for one, name in enumerate(self._name_of) if name and one < given]
        chosen = next((one for one in others if self._references[one] == 0), given)
        if chosen != given:
            self._eviction.remove(chosen)
            self._eviction.add(given)
        self._forget(chosen)
        return chosen


class PopsTwice(Lru):
    def pop(self):
        block_id = super().pop()
        if block_id == 3 and len(self) > 2:
            self.add(block_id)
        return block_id


class CountsWhatIsGone(Lru):
    def __init__(self, options=None):
        super().__init__(options)
        self.count = 0

    def add(self, block_id):
        super().add(block_id)
        self.count += 1

    def pop(self):
        self.count -= 1
        return super().pop()

    def __len__(self):
        return self.count


class PopsNothing(Lru):
    def pop(self):
        return super().pop() if self._released else 0


class RollsDice(Lru):
    def pop(self):
        block_id = random.choice(list(self._released) or [0])  # noqa: S311 - that is its fault
        self.remove(block_id)
        return block_id


class ForgetsHits(Lru):
    """A block that is hit again stays a candidate."""

    def remove(self, block_id):
        if block_id > 2:
            return
        super().remove(block_id)


class OverlooksSome(Lru):
    """Never takes every 97th block."""

    def add(self, block_id):
        if block_id % 97 != 96:
            super().add(block_id)


class LosesInACrowd(Lru):
    """Keeps no more than 40 in mind."""

    def remove(self, block_id):
        super().remove(block_id)
        if len(self) > 40:
            self.pop()


class ByHash(Lru):
    """In the order of hashes, which differ between processes."""

    def pop(self):
        if not len(self):
            raise IndexError
        first = min(self._released, key=lambda one: hash(str(one)))
        self.remove(first)
        return first


class SharedByAll(Lru):
    released: dict[int, None] = {}

    def __init__(self, options=None):
        super().__init__(options)
        self._released = self.released


ALLOCATORS = [
    (CountsTheNullBlock, "A1"),
    (TakesBeforeItLooks, "A2"),
    (LeaksOnTruncate, "A3"),
    (SharesWithoutCounting, "A3"),
    (IgnoresSalt, "A4"),
    (TrustsHashes, "A4"),
    (ForgetsTheParent, "A4"),
    (EvictsWhatIsUsed, "A3"),
    (KeepsOneBack, "A3"),
    (HashesWhatIsComputed, "A7"),
    (HitsEverything, "A8"),
    (NeverHits, "A9"),
    (StopsAtTheFirstGap, "A9"),
    (IgnoresWindows, "A9"),
    (TakesAnyModel, "A9"),
    (PromisesTooMuch, "A10"),
    (HandsOutBlockZero, "A11"),
    (BoastsOfItsCapacity, "A12"),
    (TrimsTooFar, "A13"),
    (NeverTrims, "A13"),
    (SwapsBlocks, "A14"),
    (KeepsHitsToItself, "A16"),
    (TellsOfNobody, "A16"),
    (KnowsBetter, "A16"),
]
EVICTIONS = [
    (PopsTwice, "E1"),
    (OverlooksSome, "E1"),
    (LosesInACrowd, "E1"),
    (CountsWhatIsGone, "E2"),
    (PopsNothing, "E3"),
    (RollsDice, "E4"),
    (ByHash, "E4"),
    (ForgetsHits, "E5"),
    (SharedByAll, "C4"),
]


@pytest.mark.parametrize(("mutant", "number"), ALLOCATORS, ids=name_of)
def test_a_wrong_allocator_is_killed(mutant, number):
    assert_killed("allocator", mutant, number)


@pytest.mark.parametrize(("mutant", "number"), EVICTIONS, ids=name_of)
def test_a_wrong_eviction_is_killed(mutant, number):
    assert_killed("eviction", mutant, number)
