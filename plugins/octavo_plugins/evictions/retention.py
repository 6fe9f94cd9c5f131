"""Blocks are kept as requests ask for it: a priority, with a time to live (vllm #37003, #40270).

As TensorRT-LLM's KvCacheRetentionConfig has it, for whole requests.
"""

from __future__ import annotations

from typing import Any, Final

from octavo.interfaces.eviction import Eviction
from octavo_plugins.evictions.params import RetentionParams

#: of blocks for which nobody asked for anything: priority, and until when
_USUAL: Final = (35, float("inf"))


class Retention(Eviction):
    """Evict the lowest priority first, equals in the order of release.

    When its time is over a block has the usual priority, and is the first of these to go: seen as
    soon as it is the first of its own priority. A request that hits a block and asks for something
    decides anew.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._wanted: dict[int, tuple[int, float]] = {}
        self._queues: dict[int, dict[int, None]] = {}  # by priority: released longest ago first

    def on_cached(self, block_id: int, content: Any, params: Any) -> None:
        """Take what the request asks for, or what is usual."""
        del content
        self._wanted[block_id] = _USUAL
        self.on_hit(block_id, params)

    def on_hit(self, block_id: int, params: Any) -> None:
        """Take what the request asks for, if it does. The block is no candidate now."""
        asked = RetentionParams() if params is None else RetentionParams.read(params)
        if asked.retention_priority is not None:
            until_s = self.now_s + (asked.retention_s or float("inf"))
            self._wanted[block_id] = asked.retention_priority, until_s

    def add(self, block_id: int) -> None:
        """Append the block to those of its priority."""
        self._queues.setdefault(self._wanted_of(block_id)[0], {})[block_id] = None

    def remove(self, block_id: int) -> None:
        """Take the block out."""
        del self._queues[self._wanted_of(block_id)[0]][block_id]

    def pop(self) -> int:
        """Return the block of the lowest priority by now."""
        heads = [next(iter(queue)) for queue in self._queues.values() if queue]
        if not heads:
            raise IndexError("no block to evict")
        self.remove(block_id := min(heads, key=self._worth))
        return block_id

    def _worth(self, block_id: int) -> tuple[int, float]:
        priority, until_s = self._wanted_of(block_id)
        return (priority if until_s > self.now_s else _USUAL[0]), until_s

    def _wanted_of(self, block_id: int) -> tuple[int, float]:
        return self._wanted.get(block_id, _USUAL)

    def __len__(self) -> int:
        """Return the number of candidates."""
        return sum(map(len, self._queues.values()))
