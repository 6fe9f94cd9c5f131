"""Least recently used: the block released longest ago goes first."""

from __future__ import annotations

from typing import Any

from octavo.interfaces.eviction import Eviction


class Lru(Eviction):
    """Evict in the order of release. All operations are O(1)."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._released: dict[int, None] = {}  # insertion-ordered: oldest first

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
        block_id = next(iter(self._released))
        del self._released[block_id]
        return block_id

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self._released)
