"""What a step still has room for, by trying one number after another.

Slow and plain, so that `octavo.engine.budget` has something to be compared with.

Knows numbers. Does not know requests or policies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.budget import Limits
    from octavo.engine.plan import RowAdvance
    from octavo.interfaces.executor import StepCosts

#: sums of costs are not exact
_SLACK_MS = 1e-6


class Share(NamedTuple):
    """So many tokens, drafts included, behind those before `start`."""

    num_tokens: int
    start: int
    num_drafts: int


@dataclass
class StepShares:
    """The shares of a step in their order."""

    limits: Limits
    costs: StepCosts
    taken: list[Share] = field(default_factory=list)

    def add(self, share: RowAdvance) -> None:
        """Add a share as a plan has it."""
        self.taken.append(Share(share.num_tokens, share.start, len(share.drafts)))

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens in all."""
        return sum(one.num_tokens for one in self.taken)

    @property
    def num_left(self) -> int:
        """Return how many tokens fit, whatever they cost."""
        return self.limits.max_num_batched_tokens - self.num_tokens

    def room_for_chunk(self, context: int = 0) -> int:
        """Return the most tokens for a prefill after `context`; a block at least (S4)."""
        if self.limits.max_step_ms is None:
            return self.num_left
        room = self._most_in_time(context)
        if self.num_tokens <= len(self.taken):
            room = max(room, self.limits.block_size)
        return min(self.num_left, room)

    def room_for_drafts(self, context: int, wanted: int, later: Sequence[int]) -> int:
        """Return how many of `wanted` drafts fit behind one token after `context`.

        `later`: the contexts of those behind it, which may each want a token of the step.
        """
        num_rows = self.limits.max_logit_rows - self.limits.max_num_seqs
        num_rows -= sum(one.num_drafts for one in self.taken)
        room = min(wanted, self.num_left - 1 - len(later), num_rows)
        if self.limits.max_step_ms is not None:
            room = min(room, self._most_in_time(context, later) - 1)
        return max(0, room)

    def _most_in_time(self, context: int, later: Sequence[int] = ()) -> int:
        limit_ms = self.limits.max_step_ms
        pairs = sum(one.num_tokens * one.start for one in self.taken) + sum(later)
        num_before = self.num_tokens + len(later)
        most = 0
        for num_tokens in range(1, self.num_left + 1):
            took_ms = self.costs.predict_ms(num_before + num_tokens, pairs + num_tokens * context)
            if limit_ms is not None and took_ms > limit_ms + _SLACK_MS:
                break
            most = num_tokens
        return most
