"""Adaptive replacement: recent or frequent, whichever was missed more (vllm #40268).

Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003).
"""

from __future__ import annotations

from typing import Any

from octavo.interfaces.eviction import Eviction


class Arc(Eviction):
    """Keep blocks that were seen once and those seen again, in shares that learn.

    Names of evicted blocks are remembered for a while. One that comes back says that its side
    should have been larger: T1 and T2 are `_queues`, B1 and B2 `_ghosts`, p is `_target`. What is
    in use is nobody's to evict, so only candidates count here.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._queues: tuple[dict[int, None], ...] = ({}, {})  # seen once, again; oldest first
        self._ghosts: tuple[dict[Any, None], ...] = ({}, {})
        self._content: dict[int, Any] = {}
        self._side: dict[int, int] = {}  # 1: was seen again
        # how many of those seen once are to be kept; the most candidates at a time: as many names
        self._target, self._most = 0.0, 0

    def on_cached(self, block_id: int, content: Any, params: Any) -> None:
        """Learn from content that was evicted too early."""
        del params
        self._content[block_id], self._side[block_id] = content, 0
        for side, ghosts in enumerate(self._ghosts):
            if content in ghosts:
                weight = max(1.0, len(self._ghosts[1 - side]) / len(ghosts)) * (-1 if side else 1)
                self._target = max(0.0, min(self._target + weight, self._most))
                self._side[block_id] = 1
                del ghosts[content]

    def on_hit(self, block_id: int, params: Any) -> None:
        """Note that the block was seen again."""
        del params
        self._side[block_id] = 1

    def add(self, block_id: int) -> None:
        """Append the block to its side."""
        self._queues[self._side.get(block_id, 0)][block_id] = None
        self._most = max(self._most, len(self))

    def remove(self, block_id: int) -> None:
        """Take the block out."""
        del self._queues[block_id in self._queues[1]][block_id]

    def pop(self) -> int:
        """Return the oldest of the side that has more than its share; remember its name."""
        once, again = self._queues
        if not len(self):
            raise IndexError("no block to evict")
        side = 0 if once and (len(once) > self._target or not again) else 1
        self.remove(block_id := next(iter(self._queues[side])))
        self._ghosts[side][self._content.pop(block_id, None)] = None
        if len(self._ghosts[side]) > self._most:
            del self._ghosts[side][next(iter(self._ghosts[side]))]
        return block_id

    def __len__(self) -> int:
        """Return the number of candidates."""
        return sum(map(len, self._queues))
