"""The interface of an engine under measurement.

Knows what a call is. Does not know clocks or cases' numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo_peers.work import Case, Job


class Engine(ABC):
    """An engine with the model of a job loaded, on so many threads as the job says.

    Prefixes are cached if, and only if, the job's cases share one.
    """

    @abstractmethod
    def __init__(self, job: Job) -> None:
        """Load the model. Raises what the engine raises."""

    @abstractmethod
    def version(self) -> str:
        """Return the version of the engine."""

    @abstractmethod
    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Return exactly `num_tokens` greedy ids for each prompt; no id ends a sequence."""

    def prepare(self, case: Case, prefix: list[int]) -> None:
        """Set up what the calls of a case need; not timed."""
        del case, prefix

    def close(self) -> None:
        """Give back what a process does not give back by ending."""
        return
