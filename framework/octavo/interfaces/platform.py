"""The platform kind: facts of the machine that the engine runs on.

Knows cores and memory, as limited by cgroups and the process's own limits. Does not know models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Platform(ABC):
    """Facts of a device.

    L1  asking changes nothing: neither affinity, nor threads, nor memory.
    L2  numbers are those of a machine: at least one thread, no more than processors, some memory.
    L3  facts and reasons are text.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def why_not(self) -> list[str]:
        """Return the reasons why this platform cannot be used here; empty when it can."""

    @abstractmethod
    def num_threads(self) -> int:
        """Return how many threads this process may run at once (affinity and quota counted)."""

    @abstractmethod
    def available_bytes(self) -> int:
        """Return the memory that is free to be taken now, as limits leave it."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return facts for people: model name, cores, instruction sets, memory."""
