"""Keeps the mistakes of an eviction order from everyone's blocks.

The first time that one fails, the log is told, and from then on blocks go in the order in which
they were released. Knows eviction orders. Does not know allocators.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from octavo.faults import FAULTS, Fault, FaultLog
from octavo.interfaces.eviction import Eviction

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from octavo.sampling_params import SamplingParams

logger = logging.getLogger(__name__)


class GuardedEviction(Eviction):
    """Asks an eviction order while it answers well, and keeps its candidates for when it does not.

    `has_failed` is True once it has failed; it is not asked again then.
    """

    def __init__(self, eviction: Eviction) -> None:
        super().__init__()
        self.eviction = eviction
        self.has_failed = False
        self._blocks: dict[int, None] = {}

    def add(self, block_id: int) -> None:
        """Note that a cached block lost its last owner."""
        self._blocks[block_id] = None
        self._ask("add", lambda: self.eviction.add(block_id))

    def remove(self, block_id: int) -> None:
        """Note that the block is no candidate any more."""
        self._blocks.pop(block_id, None)
        self._ask("remove", lambda: self.eviction.remove(block_id))

    def pop(self) -> int:
        """Remove and return the block to evict. Raises IndexError when there is none."""
        if not self._blocks:
            message = "no block can be evicted"
            raise IndexError(message)
        chosen = self._ask("pop", self._pop)
        block_id = next(iter(self._blocks)) if chosen is None else chosen
        del self._blocks[block_id]
        return block_id

    def _pop(self) -> int:
        block_id = self.eviction.pop()
        if block_id not in self._blocks:
            message = f"pop returned {block_id!r:.80}, which is no candidate"
            raise ValueError(message)
        return block_id

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self._blocks)

    def on_cached(self, block_id: int, content: Hashable, params: SamplingParams | None) -> None:
        """Note that a block is cached from now on."""
        self._ask("on_cached", lambda: self.eviction.on_cached(block_id, content, params))

    def on_hit(self, block_id: int, params: SamplingParams | None) -> None:
        """Note that a request found the block."""
        self._ask("on_hit", lambda: self.eviction.on_hit(block_id, params))

    def _ask(self, method: str, call: Callable[[], int | None]) -> int | None:
        if self.has_failed:
            return None
        self.eviction.now_s = self.now_s
        try:
            return call()
        except FAULTS as error:
            FaultLog(logger).tell(Fault.of(self.eviction, method, error))
            self.has_failed = True
            return None
