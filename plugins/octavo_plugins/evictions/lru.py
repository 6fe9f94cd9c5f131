"""Least recently used: the block released longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from octavo.interfaces.eviction import Eviction


class Lru(Eviction):
    """Evict in the order of release. All operations are O(1)."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        # oldest first; a plain dict would pass over all that went before with each `pop`
        self._released: OrderedDict[int, None] = OrderedDict()

    def add(self, block_id: int) -> None:
        """Append the block: it was used most recently."""
        self._released[block_id] = None

    def remove(self, block_id: int) -> None:
        """Take the block out, wherever it stands."""
        del self._released[block_id]

    def pop(self) -> int:
        """Return the block released longest ago."""
        if not self._released:
            raise IndexError("no block to evict")
        return self._released.popitem(last=False)[0]

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self._released)
