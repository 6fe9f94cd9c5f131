"""Contiguous KV: each request reserves room for the longest context at once.

The baseline that shows what paging saves. Knows block ids. Does not share anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import UnsupportedError
from octavo.interfaces.allocator import Allocator, AllocatorContext, BlockCounts, BlockTable

if TYPE_CHECKING:
    from collections.abc import Sequence


class ContiguousAllocator(Allocator):
    """Hand out runs of `max_model_len` tokens, neighbours in memory, to one request each."""

    def __init__(self, options: Any, context: AllocatorContext) -> None:
        super().__init__(options, context)
        if len(context.groups) > 1:
            raise UnsupportedError(
                "the allocator 'contiguous' serves models whose layers all see the same positions",
                f"this model has {len(context.groups)} groups of layers",
                "use --allocator paged",
            )
        self.block_size = context.block_size
        self._total = context.num_blocks - 1
        longest = -(-context.max_model_len // context.block_size)
        self._run_length = min(longest, self._total)
        starts = range(1, self._total - self._run_length + 2, max(1, self._run_length))
        self._free_runs = sorted(starts, reverse=True)  # a stack: low ids first
        self._num_runs = len(self._free_runs)

    @property
    def capacity_tokens(self) -> int:
        """One run."""
        return self._run_length * self.block_size

    def counts(self) -> BlockCounts:
        """Return the counts; what is left over beyond whole runs stays free for ever."""
        used = (self._num_runs - len(self._free_runs)) * self._run_length
        return BlockCounts(self._total - used, used, 0, self._total)

    def match(self, table: BlockTable, token_ids: Sequence[int]) -> int:
        """Nothing is ever shared."""
        del table, token_ids
        return 0

    def can_allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """A run is free, or the table's own run is long enough."""
        del num_hit_tokens
        if num_tokens > self.capacity_tokens:
            return False
        return num_tokens <= 0 or bool(table.block_ids) or bool(self._free_runs)

    def allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Take a whole run the first time."""
        if not self.can_allocate(table, num_tokens, num_hit_tokens=num_hit_tokens):
            return False
        if not table.block_ids and num_tokens > 0:
            start = self._free_runs.pop()
            table.block_ids.extend(range(start, start + self._run_length))
        return True

    def commit(self, table: BlockTable, token_ids: Sequence[int], num_tokens: int) -> None:
        """Nothing is hashed."""

    def truncate(self, table: BlockTable, num_tokens: int) -> None:
        """The reservation stays."""

    def free(self, table: BlockTable) -> None:
        """Give the run back."""
        if table.block_ids:
            self._free_runs.append(table.block_ids[0])
            table.block_ids.clear()

    def reset_cache(self) -> bool:
        """There is no cache."""
        return len(self._free_runs) == self._num_runs
