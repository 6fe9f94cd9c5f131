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

    Cached blocks count as free for allocation: the eviction order says which goes first.
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
        self._total = context.num_blocks - 1  # block 0 is the null block
        self._free = list(range(self._total, 0, -1))  # a stack: low ids first
        self._references = [0] * context.num_blocks
        self._key_of: list[BlockKey | None] = [None] * context.num_blocks
        self._block_of: dict[BlockKey, int] = {}

    @property
    def capacity_tokens(self) -> int:
        """All blocks but the null block."""
        return self._total * self.block_size

    def counts(self) -> BlockCounts:
        """Return the counts; used is what is neither free nor cached."""
        free, cached = len(self._free), len(self._eviction)
        return BlockCounts(free, self._total - free - cached, cached, self._total)

    def match(self, table: BlockTable, token_ids: Sequence[int]) -> int:
        """Walk the full blocks as far as they are cached, one token short of the end (A8)."""
        table.keys = []
        if not self.context.enable_prefix_caching:
            return 0
        size, parent = self.block_size, None
        for start in range(0, len(token_ids) - size, size):
            key = BlockKey(
                parent, tuple(token_ids[start : start + size]), table.extra, self._hasher
            )
            block_id = self._block_of.get(key)
            if block_id is None:
                break
            parent = self._key_of[block_id]  # the canonical object: chains then meet at once
            table.keys.append(parent)
        return len(table.keys) * size

    def can_allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Count blocks; hits that are merely cached are no longer there to be evicted."""
        num_new, hits = self._need(table, num_tokens, num_hit_tokens)
        num_revived = sum(self._references[block_id] == 0 for block_id in hits)
        return num_new <= len(self._free) + len(self._eviction) - num_revived

    def allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Take the hit blocks, then fresh ones; nothing changes when they do not suffice."""
        if not self.can_allocate(table, num_tokens, num_hit_tokens=num_hit_tokens):
            return False
        num_new, hits = self._need(table, num_tokens, num_hit_tokens)
        for block_id in hits:
            if self._references[block_id] == 0:
                self._eviction.remove(block_id)
            self._references[block_id] += 1
            table.block_ids.append(block_id)
        if hits:
            table.num_hashed_blocks = len(hits)
            del table.keys[len(hits) :]
        for _ in range(num_new):
            block_id = self._take()
            self._references[block_id] = 1
            table.block_ids.append(block_id)
        return True

    def commit(self, table: BlockTable, token_ids: Sequence[int], num_tokens: int) -> None:
        """Name the newly full blocks. A block whose content is already known stays private."""
        if not self.context.enable_prefix_caching:
            return
        size = self.block_size
        del table.keys[table.num_hashed_blocks :]
        while (start := table.num_hashed_blocks * size) + size <= num_tokens:
            parent = table.keys[-1] if table.keys else None
            key = BlockKey(
                parent, tuple(token_ids[start : start + size]), table.extra, self._hasher
            )
            block_id = table.block_ids[table.num_hashed_blocks]
            known = self._block_of.get(key)
            if known is None:
                self._block_of[key] = block_id
                self._key_of[block_id] = key
            else:
                key = self._key_of[known] or key
            table.keys.append(key)
            table.num_hashed_blocks += 1

    def truncate(self, table: BlockTable, num_tokens: int) -> None:
        """Release the blocks that hold nothing of the first `num_tokens`, last first."""
        num_keep = -(-num_tokens // self.block_size)
        while len(table.block_ids) > num_keep:
            self._release(table.block_ids.pop())
        table.num_hashed_blocks = min(table.num_hashed_blocks, num_tokens // self.block_size)
        del table.keys[table.num_hashed_blocks :]

    def free(self, table: BlockTable) -> None:
        """Release all blocks, the tail first: a prefix is worth more than what follows it."""
        while table.block_ids:
            self._release(table.block_ids.pop())
        table.num_hashed_blocks = 0
        table.keys = []

    def reset_cache(self) -> bool:
        """Forget every cached block; those in use lose their name and stay with their owners."""
        while len(self._eviction):
            self._forget(block_id := self._eviction.pop())
            self._free.append(block_id)
        for block_id in list(self._block_of.values()):
            self._forget(block_id)
        return self.counts().used == 0

    def _key(self, parent: BlockKey | None, tokens: Sequence[int], table: BlockTable) -> BlockKey:
        return BlockKey(parent, tuple(tokens), table.extra, self._hasher)

    def _need(
        self, table: BlockTable, num_tokens: int, num_hit_tokens: int
    ) -> tuple[int, list[int]]:
        """Return how many fresh blocks are needed, and the ids of the hit blocks."""
        hits: list[int] = []
        if num_hit_tokens and not table.block_ids:
            keys = table.keys[: num_hit_tokens // self.block_size]
            hits = [self._block_of[key] for key in keys]
        num_blocks = -(-num_tokens // self.block_size)
        return max(0, num_blocks - len(table.block_ids) - len(hits)), hits

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        block_id = self._eviction.pop()
        self._forget(block_id)
        return block_id

    def _forget(self, block_id: int) -> None:
        key = self._key_of[block_id]
        if key is not None:
            del self._block_of[key]
            self._key_of[block_id] = None

    def _release(self, block_id: int) -> None:
        count = self._references[block_id] - 1
        if count < 0:
            raise AssertionError(f"block {block_id} was released more often than taken")
        self._references[block_id] = count
        if count == 0:
            if self._key_of[block_id] is None:
                self._free.append(block_id)
            else:
                self._eviction.add(block_id)
