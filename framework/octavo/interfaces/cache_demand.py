"""How many blocks one request holds at once, over all groups of a model's layers.

Knows groups, lengths and blocks. Does not know requests, nor who hands blocks out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.interfaces.executor import CacheGroup


@dataclass(frozen=True, slots=True)
class CacheDemand:
    """The arithmetic of blocks that are given back once no token can read them.

    `max_tokens_ahead`: how many tokens the steps in flight may write beyond those that are
    committed, at most; None: any number, so that nothing is given back in time.
    """

    groups: tuple[CacheGroup, ...]
    block_size: int
    max_tokens_ahead: int | None = None

    def most(self, num_blocks: int) -> list[int]:
        """Return how many of its first `num_blocks` blocks a request holds at once, by group.

        Blocks go when the committed tokens fill another one. So what is held reaches from one
        that its first token reads, `reach` positions back, to the end of what is in flight.
        """
        ahead, size = self.max_tokens_ahead, self.block_size
        if ahead is None:
            return [num_blocks] * len(self.groups)
        written = -(-(ahead + size - 1) // size)
        return [
            num_blocks if group.reach is None else min(num_blocks, written - -group.reach // size)
            for group in self.groups
        ]

    def num_blocks(self, num_tokens: int) -> int:
        """Return how many blocks a request of so many tokens holds at most, in all groups."""
        return sum(self.most(-(-num_tokens // self.block_size)))

    def longest(self, num_blocks: int, max_tokens: int) -> int:
        """Return how many tokens a request may have that `num_blocks` blocks are for.

        A multiple of the block size, and `max_tokens` (rounded up) where windows alone would
        never end.
        """
        limit = -(-max_tokens // self.block_size)
        if any(group.reach is None for group in self.groups):
            limit = num_blocks
        fit = bisect_right(range(limit + 1), num_blocks, key=lambda count: sum(self.most(count)))
        return (fit - 1) * self.block_size
