"""How many drafts each request gets: as many as are expected to pay for their time.

A draft costs what one more token costs in a step, and gains a token when it and all before it
are right. Both are compared by the costs measured at start and by how often the request's
drafts were right so far, so that the same trace is drafted in the same way.

Knows proposers, costs and acceptance. Does not know blocks, budgets or how drafts are verified.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from octavo.engine.acceptance import Acceptance

if TYPE_CHECKING:
    from octavo.engine.request import Request
    from octavo.interfaces.executor import ExecutorFacts
    from octavo.interfaces.proposer import EngineProposer

logger = logging.getLogger(__name__)
#: tokens that a grammar forces are always right: at most so many are offered at once
MAX_FORCED: Final = 8


class Speculator:
    """Decides on drafts: those of `proposer`, or else those of the executor's own."""

    def __init__(self, facts: ExecutorFacts, proposer: EngineProposer | None = None) -> None:
        self._costs = facts.costs
        self._proposer = proposer
        self._max_drafts = facts.max_drafts if proposer is None else proposer.max_drafts
        self._draft_ms = facts.draft_ms if proposer is None else 0.0
        self._vocab_size = facts.vocab_size
        self._is_reported = False
        self._records: dict[str, Acceptance] = {}
        self.num_drafts = 0
        self.num_accepted = 0

    @property
    def is_active(self) -> bool:
        """Return whether anybody proposes drafts (a grammar's forced tokens apart)."""
        return self._max_drafts > 0

    @property
    def is_executors(self) -> bool:
        """Return whether the executor's own proposer makes the drafts."""
        return self._proposer is None and self.is_active

    def drafts(self, request: Request, room: int, num_running: int) -> tuple[int, ...]:
        """Return drafts for a request that is about to decode, at most `room`."""
        if request.drafts:
            return self._valid(request.drafts[:room])
        if self._proposer is None or room <= 0:
            return ()
        limit = min(room, self.num_worthwhile(request, num_running))
        return self._propose(self._proposer, request, limit) if limit > 0 else ()

    def _propose(self, proposer: EngineProposer, request: Request, limit: int) -> tuple[int, ...]:
        """Ask a proposer; one that raises is reported once, and costs nobody a request."""
        try:
            return self._valid(tuple(proposer.propose(request, limit))[:limit])
        except Exception:
            if not self._is_reported:
                self._is_reported = True
                logger.exception("the proposer %s raised: no drafts", type(proposer).__name__)
            return ()

    def _valid(self, drafts: tuple[int, ...]) -> tuple[int, ...]:
        """Cut drafts before the first that is no token of the model."""
        for place, token_id in enumerate(drafts):
            if not 0 <= token_id < self._vocab_size:
                return drafts[:place]
        return drafts

    def num_wanted(self, request: Request, num_running: int) -> int:
        """Return how many drafts the executor may propose after this step."""
        if request.source.grammar is not None:
            return MAX_FORCED
        return self.num_worthwhile(request, num_running) if self.is_executors else 0

    def num_worthwhile(self, request: Request, num_running: int) -> int:
        """Return the number of drafts that yields most tokens for the time of a step.

        `num_running` requests decode in the step anyway, one token each.
        """
        rate, predict_ms = self._record(request).rate, self._costs.predict_ms
        best, best_rate = 0, num_running / predict_ms(num_running)
        gain = 0.0
        for num_drafts in range(1, self._max_drafts + 1):
            gain += rate**num_drafts
            cost_ms = predict_ms(num_running + num_drafts) + num_drafts * self._draft_ms
            if (num_running + gain) / cost_ms > best_rate:
                best, best_rate = num_drafts, (num_running + gain) / cost_ms
        return best

    def observe(self, request: Request, num_drafts: int, num_accepted: int) -> None:
        """Note how a request's drafts fared."""
        self._record(request).observe(num_drafts, num_accepted)
        self.num_drafts += num_drafts
        self.num_accepted += num_accepted

    def _record(self, request: Request) -> Acceptance:
        return self._records.setdefault(request.request_id, Acceptance())

    def forget(self, request: Request) -> None:
        """Drop what is kept of a request that has ended."""
        self._records.pop(request.request_id, None)
        if self._proposer is not None:
            self._proposer.forget(request.request_id)
