"""What one step may hold: tokens, sequences and predicted milliseconds.

Knows numbers only. Does not know requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.executor import StepCosts


#: sums of measured costs are not exact
_EPSILON_MS = 1e-6


@dataclass(frozen=True, slots=True)
class Limits:
    """The engine's budgets. `max_step_ms` None means no limit in time."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_step_ms: float | None
    block_size: int
    max_model_len: int
    max_num_queued_reqs: int
    max_logit_rows: int = 0


class StepBudget:
    """What is left of one step while it is being planned."""

    __slots__ = (
        "_costs", "_limits", "num_draft_rows", "num_seqs", "num_tokens", "used_pairs",
        "used_tokens",
    )  # fmt: skip

    def __init__(self, limits: Limits, costs: StepCosts) -> None:
        self._limits = limits
        self._costs = costs
        self.used_pairs = 0
        self.used_tokens = 0
        self.num_seqs = 0
        self.num_tokens = limits.max_num_batched_tokens
        # every sequence may have a row of its own beside those of drafts
        self.num_draft_rows = limits.max_logit_rows - limits.max_num_seqs

    def take(self, num_tokens: int, context: int, num_drafts: int = 0) -> None:
        """Spend `num_tokens`, drafts included, on a sequence with `context` tokens before them."""
        if num_drafts:
            self.num_draft_rows -= num_drafts
        self.num_tokens -= num_tokens
        self.used_tokens += num_tokens
        self.used_pairs += num_tokens * context
        self.num_seqs += 1

    def give_back(self, num_tokens: int, context: int, num_drafts: int = 0) -> None:
        """Undo a `take`."""
        self.num_draft_rows += num_drafts
        self.num_tokens += num_tokens
        self.used_tokens -= num_tokens
        self.used_pairs -= num_tokens * context
        self.num_seqs -= 1

    def room_for_drafts(self, context: int, wanted: int, later: Sequence[int] = ()) -> int:
        """Return how many of `wanted` drafts still fit behind a token that follows `context`.

        `later`: the contexts of those that may want a token in the same step, and get it.
        """
        room = min(wanted, self.num_tokens - 1 - len(later), self.num_draft_rows)
        if self._limits.max_step_ms is not None:
            room = min(room, self._most_within(self._limits.max_step_ms, context, later) - 1)
        return max(0, room)

    def room_for_chunk(self, context: int = 0) -> int:
        """Return how many prefill tokens still fit after `context`, by tokens and predicted time.

        At least one block while the token budget lasts and the step holds no more than one token
        per sequence: prefill goes on, however dear the decodes are (S4).
        """
        limit_ms = self._limits.max_step_ms
        if limit_ms is None:
            return self.num_tokens
        room = self._most_within(limit_ms, context)
        if self.used_tokens <= self.num_seqs:
            room = max(room, self._limits.block_size)
        return min(self.num_tokens, room)

    def _most_within(self, limit_ms: float, context: int, later: Sequence[int] = ()) -> int:
        """Return the largest chunk that keeps the step within the limit, by bisection."""
        num_before, pairs_before = self.used_tokens + len(later), self.used_pairs + sum(later)
        low, high = 0, self.num_tokens
        while low < high:
            middle = (low + high + 1) // 2
            pairs = pairs_before + middle * context
            if self._costs.predict_ms(num_before + middle, pairs) <= limit_ms + _EPSILON_MS:
                low = middle
            else:
                high = middle - 1
        return low
