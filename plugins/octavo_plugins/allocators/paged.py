"""Paged KV: blocks are taken as a request grows, and full ones are shared by prefix.

Knows block ids, reference counts and keys. Does not know tensors, requests or policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.interfaces.allocator import Allocator, AllocatorContext, BlockCounts, BlockTable
from octavo_plugins.allocators.keys import BlockKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class PagedAllocator(Allocator):
    """Blocks on demand, with a prefix cache (vLLM's PagedAttention; Kwon et al., SOSP 2023).

    A block is in exactly one of three states:

        free      never written, or forgotten      in `_free`
        used      referenced by >= 1 table          `_references[id] >= 1`
        cached    hashed, referenced by none        in the eviction order, `_references[id] == 0`

    Cached blocks count as free for allocation: the eviction order says which goes first. A key
    leads to one block for each group of layers, 0 where that group's is not cached.
    """

    def __init__(
        self,
        options: Any,
        context: AllocatorContext,
        hasher: Callable[[object], int] = hash,
    ) -> None:
        super().__init__(options, context)
        self.block_size = context.block_size
        self._hasher = hasher
        self._eviction = context.eviction
        self._is_sharing = context.enable_prefix_caching
        self._reaches = [group.reach for group in context.groups]
        self._needs_all = None in self._reaches
        self._total = context.num_blocks - 1  # block 0 is the null block
        self._free = list(range(self._total, 0, -1))  # a stack: low ids first
        self._references = [0] * context.num_blocks
        self._name_of: list[tuple[BlockKey, int] | None] = [None] * context.num_blocks  # key, group
        self._blocks_of: dict[BlockKey, list[int]] = {}

    @property
    def capacity_tokens(self) -> int:
        """What one request can hold, with the blocks given back that it has left behind."""
        return self.context.demand.longest(self._total, self.context.max_model_len)

    def counts(self) -> BlockCounts:
        """Return the counts; used is what is neither free nor cached."""
        free, cached = len(self._free), len(self._eviction)
        return BlockCounts(free, self._total - free - cached, cached, self._total)

    def match(self, table: BlockTable, token_ids: Sequence[int]) -> int:
        """Walk the full blocks, one token short of the end (A8), and take what all can go on from.

        The walk goes past gaps where no group needs every block.
        """
        table.keys = []
        if not self._is_sharing:
            return 0
        size, parent = self.block_size, None
        found: list[list[int]] = []
        for start in range(0, len(token_ids) - size, size):
            key = self._key(parent, token_ids[start : start + size], table)
            blocks = self._blocks_of.get(key)
            if blocks is None:
                if self._needs_all:
                    break
                parent, blocks = key, [0] * len(self._reaches)
            else:
                parent = self._canonical(key, blocks)  # one object: chains then meet at once
            table.keys.append(parent)
            found.append(blocks)
        num_hits = self._longest(found)
        del table.keys[num_hits:]
        return num_hits * size

    def _canonical(self, key: BlockKey, blocks: list[int]) -> BlockKey:
        name = self._name_of[next(block_id for block_id in blocks if block_id)]
        return key if name is None else name[0]

    def _longest(self, found: list[list[int]]) -> int:
        """Return after how many blocks every group has what the next token can read (A9).

        `found` holds each block's ids by group. A window or a state may lack what lies far back,
        and also what lies before a longer prefix than the one that is returned.
        """
        if len(self._reaches) == 1 and self._needs_all:
            return len(found)
        runs = [0] * len(self._reaches)  # how many blocks each group has on end, up to the last
        longest = 0
        for num_blocks, blocks in enumerate(found, 1):
            runs = [run + 1 if one else 0 for run, one in zip(runs, blocks, strict=True)]
            num_tokens = num_blocks * self.block_size
            if all(
                run >= num_blocks - self._first_needed(reach, num_tokens)
                for run, reach in zip(runs, self._reaches, strict=True)
            ):
                longest = num_blocks
        return longest

    def _first_needed(self, reach: int | None, num_tokens: int) -> int:
        """Return the first block that positions from `num_tokens` on can read."""
        return 0 if reach is None else max(0, num_tokens - reach) // self.block_size

    def can_allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Count blocks; hits that are merely cached are no longer there to be evicted."""
        return self._is_room(*self._need(table, num_tokens, num_hit_tokens))

    def can_admit(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Count the blocks that the request takes, less those of its hit that it has given back.

        What others hold as well is of use to nobody when it is given back.
        """
        num_blocks = -(-num_tokens // self.block_size)
        _, hits = self._need(table, num_tokens, num_hit_tokens)
        num_fresh = num_blocks - num_hit_tokens // self.block_size
        num_new = 0
        limits = self.context.demand.most(num_blocks)
        for ids, limit in zip(hits or [[]] * len(limits), limits, strict=True):
            num_taken = min(num_fresh, limit)
            kept = [block_id for block_id in ids if block_id]
            given_back = kept[: max(0, len(kept) + num_taken - limit)]  # oldest first
            num_new += num_taken - sum(self._references[one] == 0 for one in given_back)
        return self._is_room(num_new, hits)

    def _is_room(self, num_new: int, hits: list[list[int]]) -> bool:
        if not hits:
            return num_new <= len(self._free) or num_new <= len(self._free) + len(self._eviction)
        num_revived = sum(
            block_id > 0 and self._references[block_id] == 0 for ids in hits for block_id in ids
        )
        return num_new <= len(self._free) + len(self._eviction) - num_revived

    def allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Take the hit blocks, then fresh ones; nothing changes when they do not suffice."""
        num_new, hits = self._need(table, num_tokens, num_hit_tokens)
        if not self._is_room(num_new, hits):
            return False
        for group, ids in enumerate(hits):
            table.groups[group].extend(ids)
            for block_id in ids:
                if block_id == 0:
                    table.num_trimmed[group] += 1
                    continue
                if self._references[block_id] == 0:
                    self._eviction.remove(block_id)
                self._eviction.on_hit(block_id, table.params)
                self._references[block_id] += 1
        if hits:
            table.num_hashed_blocks = len(hits[0])
            del table.keys[len(hits[0]) :]
        num_blocks = -(-num_tokens // self.block_size)
        for ids in table.groups:
            for _ in range(num_blocks - len(ids)):
                block_id = self._free.pop() if self._free else self._evict()
                self._references[block_id] = 1
                ids.append(block_id)
        return True

    def _need(
        self, table: BlockTable, num_tokens: int, num_hit_tokens: int
    ) -> tuple[int, list[list[int]]]:
        """Return how many fresh blocks are needed, and the ids of the hit blocks by group."""
        num_blocks = -(-num_tokens // self.block_size)
        num_groups, num_had = len(self._reaches), len(table.groups[0])
        if not num_hit_tokens or num_had:
            return max(0, num_blocks - num_had) * num_groups, []
        num_hits = num_hit_tokens // self.block_size
        hits = []
        for group, reach in enumerate(self._reaches):
            first = self._first_needed(reach, num_hit_tokens)
            kept = [self._blocks_of[key][group] for key in table.keys[first:num_hits]]
            hits.append([0] * first + kept)
        return max(0, num_blocks - num_hits) * num_groups, hits

    def commit(self, table: BlockTable, token_ids: Sequence[int], num_tokens: int) -> None:
        """Name the newly full blocks. A block whose content is already known stays private."""
        if not self._is_sharing:
            return
        size = self.block_size
        del table.keys[table.num_hashed_blocks :]
        while (start := table.num_hashed_blocks * size) + size <= num_tokens:
            parent = table.keys[-1] if table.keys else None
            key = self._key(parent, token_ids[start : start + size], table)
            fresh = [0] * len(self._reaches)
            blocks = self._blocks_of.setdefault(key, fresh)
            if blocks is not fresh:
                key = self._canonical(key, blocks)
            for group, ids in enumerate(table.groups):
                block_id = ids[table.num_hashed_blocks]
                if blocks[group] == 0 and block_id:
                    blocks[group] = block_id
                    self._name_of[block_id] = name = key, group
                    self._eviction.on_cached(block_id, name, table.params)
            table.keys.append(key)
            table.num_hashed_blocks += 1

    def trim(self, table: BlockTable, num_tokens: int) -> None:
        """Release what is out of reach, oldest first; a cached block stays for other requests."""
        for group, reach in enumerate(self._reaches):
            if reach is None:
                continue
            ids = table.groups[group]
            first = min(self._first_needed(reach, num_tokens), len(ids))
            for index in range(table.num_trimmed[group], first):
                self._release(ids[index])
                ids[index] = 0
            table.num_trimmed[group] = max(table.num_trimmed[group], first)

    def truncate(self, table: BlockTable, num_tokens: int) -> None:
        """Release the blocks that hold nothing of the first `num_tokens`, last first."""
        num_keep = -(-num_tokens // self.block_size)
        while table.num_blocks > num_keep:
            for ids in table.groups:  # together: a block of one group is worth little alone
                self._release(ids.pop())
        table.num_trimmed = [min(num, table.num_blocks) for num in table.num_trimmed]
        table.num_hashed_blocks = min(table.num_hashed_blocks, num_tokens // self.block_size)
        del table.keys[table.num_hashed_blocks :]

    def free(self, table: BlockTable) -> None:
        """Release all blocks, the tail first: a prefix is worth more than what follows it."""
        self.truncate(table, 0)
        table.keys = []

    def reset_cache(self) -> bool:
        """Forget every cached block; those in use lose their name and stay with their owners."""
        while len(self._eviction):
            self._forget(block_id := self._eviction.pop())
            self._free.append(block_id)
        for blocks in list(self._blocks_of.values()):
            for block_id in blocks:
                self._forget(block_id)
        return self.counts().used == 0

    def _key(self, parent: BlockKey | None, tokens: Sequence[int], table: BlockTable) -> BlockKey:
        return BlockKey(parent, tuple(tokens), table.extra, self._hasher)

    def _evict(self) -> int:
        block_id = self._eviction.pop()
        self._forget(block_id)
        return block_id

    def _forget(self, block_id: int) -> None:
        """Take a block's name away; the null block has none."""
        name = self._name_of[block_id]
        if name is None:
            return
        key, group = name
        blocks = self._blocks_of[key]
        blocks[group] = 0
        if len(blocks) == 1 or not any(blocks):
            del self._blocks_of[key]
        self._name_of[block_id] = None

    def _release(self, block_id: int) -> None:
        if block_id == 0:
            return
        count = self._references[block_id] - 1
        if count < 0:
            raise AssertionError(f"block {block_id} was released more often than taken")
        self._references[block_id] = count
        if count == 0:
            if self._name_of[block_id] is None:
                self._free.append(block_id)
            else:
                self._eviction.add(block_id)
