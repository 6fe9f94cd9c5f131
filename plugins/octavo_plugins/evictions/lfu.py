"""Least frequently used: the block with the fewest hits goes first."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from octavo.interfaces.eviction import Eviction

if TYPE_CHECKING:
    from collections.abc import Hashable

    from octavo.sampling_params import SamplingParams


class Lfu(Eviction):
    """Evict by the number of hits since a block was cached, then in the order of release.

    A long prompt that comes once cannot push out what is hit again and again.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._hits: defaultdict[int, int] = defaultdict(int)
        self._by_hits: dict[int, dict[int, None]] = {}  # within: released longest ago first
        self._size = 0

    def on_cached(self, block_id: int, content: Hashable, params: SamplingParams | None) -> None:
        """Count from zero."""
        del content, params
        self._hits[block_id] = 0

    def on_hit(self, block_id: int, params: SamplingParams | None) -> None:
        """Count. The block is in use: no candidate stands in the wrong place."""
        del params
        self._hits[block_id] += 1

    def add(self, block_id: int) -> None:
        """Append the block to those with as many hits."""
        self._by_hits.setdefault(self._hits[block_id], {})[block_id] = None
        self._size += 1

    def remove(self, block_id: int) -> None:
        """Take the block out."""
        hits = self._hits[block_id]
        del self._by_hits[hits][block_id]
        if not self._by_hits[hits]:
            del self._by_hits[hits]
        self._size -= 1

    def pop(self) -> int:
        """Return the block with the fewest hits."""
        if not self._size:
            raise IndexError("no block to evict")
        block_id = next(iter(self._by_hits[min(self._by_hits)]))
        self.remove(block_id)
        return block_id

    def __len__(self) -> int:
        """Return the number of candidates."""
        return self._size
