"""What one step may hold: tokens, sequences and predicted milliseconds.

Knows numbers only. Does not know requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.interfaces.executor import StepCosts


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's budgets. `max_step_ms` None means no limit in time."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_step_ms: float | None
    block_size: int
    max_model_len: int
    max_num_queued_reqs: int


class StepBudget:
    """What is left of one step while it is being planned."""

    __slots__ = ("_limits", "_most_tokens", "num_seqs", "num_tokens", "used_tokens")

    def __init__(self, limits: Limits, costs: StepCosts) -> None:
        self._limits = limits
        limit_ms = limits.max_step_ms
        self._most_tokens = None if limit_ms is None else costs.num_tokens_within(limit_ms)
        self.used_tokens = 0
        self.num_seqs = 0
        self.num_tokens = limits.max_num_batched_tokens

    def take(self, num_tokens: int) -> None:
        """Spend `num_tokens` on one sequence."""
        self.num_tokens -= num_tokens
        self.used_tokens += num_tokens
        self.num_seqs += 1

    def give_back(self, num_tokens: int) -> None:
        """Undo a `take`."""
        self.num_tokens += num_tokens
        self.used_tokens -= num_tokens
        self.num_seqs -= 1

    def room_for_chunk(self) -> int:
        """Return how many prefill tokens still fit, by tokens and by predicted time.

        At least one block while the token budget lasts and the step holds no more than one token
        per sequence: prefill goes on, however dear the decodes are (S4).
        """
        if self._most_tokens is None:
            return self.num_tokens
        room = self._most_tokens - self.used_tokens
        if self.used_tokens <= self.num_seqs:
            room = max(room, self._limits.block_size)
        return max(0, min(self.num_tokens, room))
