"""The eviction kind: the order in which unreferenced cached blocks go.

Knows block ids, when blocks were released and hit, and names of their content to compare. Does not
know tokens, requests or a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    from octavo.sampling_params import SamplingParams


class Eviction(ABC):
    """Keeps the unreferenced cached blocks and names the next to go.

    E1  `pop` returns each added block once, unless it was removed before.
    E2  `len` = added - removed - popped.
    E3  `pop` raises IndexError when there is no candidate.
    E4  the order is a function of the calls alone: it reads no clock and draws no numbers.
    E5  an allocator that it serves keeps A1 to A15.
    """

    #: the engine's time in seconds, set before each step: no eviction order reads a clock
    now_s: float = 0.0

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

    def on_cached(self, block_id: int, content: Hashable, params: SamplingParams | None) -> None:
        """Note that a block is full and cached from now on; it is in use, so no candidate yet.

        `content` equals that of any block, at any time, with the same tokens after the same
        prefix; `params` are those of the request that computed it.
        """
        del block_id, content, params

    def on_hit(self, block_id: int, params: SamplingParams | None) -> None:
        """Note that a request with `params` found the block, whether or not others use it."""
        del block_id, params
