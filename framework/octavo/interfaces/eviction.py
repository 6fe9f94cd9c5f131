"""The eviction kind: the order in which unreferenced cached blocks go.

Knows block ids and when they were released and hit. Does not know their content.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Eviction(ABC):
    """Keeps the unreferenced cached blocks and names the next to go.

    E1  `pop` returns each added block once, unless it was removed before.
    E2  `len` = added - removed - popped.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def add(self, block_id: int) -> None:
        """Note that a cached block lost its last owner. The tail of a sequence comes first."""

    @abstractmethod
    def remove(self, block_id: int) -> None:
        """Note that the block was hit again (or forgotten): it is no candidate any more."""

    @abstractmethod
    def pop(self) -> int:
        """Remove and return the block to evict. Raises IndexError when there is none."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of candidates."""
