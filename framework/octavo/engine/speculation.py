"""How many drafts each request gets: as many as are expected to pay for their time.

A draft costs what one more token costs in a step, and gains a token when it and all before it are
right. Both are compared by the costs measured at start and by how often drafts were right so far,
so that the same trace is drafted in the same way.

Estimates may be wrong, so each request has an account: drafts are paid for with what drafts have
gained, and beyond that with a small share of the request's time. While nothing is expected of
drafts, that share is saved up until it pays for another look. So no request loses more than the
share and one short first attempt.

Knows proposers, costs and acceptance. Does not know blocks, budgets or how drafts are verified.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Final

from octavo.engine.acceptance import Acceptance
from octavo.faults import FAULTS, Fault, FaultLog

if TYPE_CHECKING:
    from octavo.engine.request import Request
    from octavo.interfaces.executor import ExecutorFacts
    from octavo.interfaces.proposer import EngineProposer

logger = logging.getLogger(__name__)
#: tokens that a grammar forces are always right: at most so many are offered at once
MAX_FORCED: Final = 8
#: the share of a request's time that drafts may cost without having gained it
_SHARE: Final = 0.01
#: what may be lent to an account that is empty: the price of so many drafts
_NUM_LENT: Final = 2


@dataclass(slots=True)
class DraftAccount:
    """How a request's drafts fared: chances, and milliseconds gained (or lost, when negative)."""

    acceptance: Acceptance
    gained_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class _Prices:
    """What a step costs without drafts, and what 0, 1, 2, ... drafts of one request add to it.

    `token_ms` is what a token is worth: what it takes without drafts.
    """

    base_ms: float
    token_ms: float
    more_ms: tuple[float, ...]


class Speculator:
    """Decides on drafts: those of `proposer`, or else those of the executor's own."""

    def __init__(self, facts: ExecutorFacts, proposer: EngineProposer | None = None) -> None:
        self._facts = facts
        self._proposer = proposer
        self._max_drafts = facts.max_drafts if proposer is None else proposer.max_drafts
        self._acceptance = Acceptance(self._max_drafts)
        self._accounts: dict[str, DraftAccount] = {}
        self._prices: dict[int, _Prices] = {}
        self._num_running = 1  # in the step that was planned last
        self._log = FaultLog(logger)
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
        """Return drafts for a request that is about to decode, at most `room`.

        `num_running` requests decode in the step anyway, one token each.
        """
        self._num_running = num_running
        if request.drafts:
            return self._valid(request.drafts[:room])
        if self._proposer is None or room <= 0:
            return ()
        drafts = self._propose(self._proposer, request, min(room, self._max_drafts))
        return drafts[: self._num_worthwhile(request, len(drafts))] if drafts else ()

    def num_wanted(self, request: Request, num_running: int) -> int:
        """Return how many drafts the executor may propose after this step."""
        if request.source.grammar is not None:
            return MAX_FORCED
        if not self.is_executors:
            return 0
        self._num_running = num_running
        return self._num_worthwhile(request, self._max_drafts)

    def observe(self, request: Request, num_drafts: int, num_accepted: int) -> None:
        """Note how a request's drafts fared."""
        self.num_drafts += num_drafts
        self.num_accepted += num_accepted
        if not 0 < num_drafts <= self._max_drafts:
            return  # more than anybody proposes: a grammar's
        account, prices = self._account(request), self._prices_of(self._num_running)
        account.acceptance.observe(num_drafts, num_accepted)
        account.gained_ms += num_accepted * prices.token_ms - prices.more_ms[num_drafts]

    def forget(self, request: Request) -> None:
        """Drop what is kept of a request that has ended."""
        self._accounts.pop(request.request_id, None)
        if self._proposer is not None:
            try:
                self._proposer.forget(request.request_id)
            except FAULTS as error:
                self._log.tell(Fault.of(self._proposer, "forget", error))

    # ------------------------------------------------------------------ what pays

    def _num_worthwhile(self, request: Request, most: int) -> int:
        """Return the number of drafts that yields most tokens for the time of a step."""
        num_running, prices = self._num_running, self._prices_of(self._num_running)
        account = self._account(request)
        saved_ms = account.gained_ms + _SHARE * request.num_output_tokens * prices.token_ms
        limit_ms = saved_ms + prices.more_ms[min(_NUM_LENT, self._max_drafts)]
        best, best_rate = 0, 1 / prices.token_ms
        least_bad, least_bad_rate = 0, 0.0
        gain, chance = 0.0, 1.0
        rates = account.acceptance.rates()
        for num_drafts, more_ms in enumerate(prices.more_ms[1 : most + 1], 1):
            if more_ms > limit_ms:
                break
            chance *= rates[num_drafts - 1]
            gain += chance
            rate = (num_running + gain) / (prices.base_ms + more_ms)
            if rate > best_rate:
                best, best_rate = num_drafts, rate
            if rate > least_bad_rate and more_ms <= saved_ms:
                least_bad, least_bad_rate = num_drafts, rate
        return best or least_bad

    def _account(self, request: Request) -> DraftAccount:
        account = self._accounts.get(request.request_id)
        if account is None:
            account = DraftAccount(Acceptance(self._max_drafts, self._acceptance))
            self._accounts[request.request_id] = account
        return account

    def _prices_of(self, num_running: int) -> _Prices:
        prices = self._prices.get(num_running)
        if prices is None:
            predict_ms, draft_ms = self._facts.costs.predict_ms, self._facts.draft_ms
            base_ms = predict_ms(num_running)
            more_ms = tuple(
                predict_ms(num_running + num) - base_ms + num * draft_ms
                for num in range(self._max_drafts + 1)
            )
            prices = self._prices[num_running] = _Prices(base_ms, base_ms / num_running, more_ms)
        return prices

    # ------------------------------------------------------------------ proposals

    def _propose(self, proposer: EngineProposer, request: Request, limit: int) -> tuple[int, ...]:
        """Ask a proposer; one that raises is reported once, and costs nobody a request."""
        try:
            return self._valid(tuple(map(index, proposer.propose(request, limit)))[:limit])
        except FAULTS as error:
            self._log.tell(Fault.of(proposer, "propose", error))
            return ()

    def _valid(self, drafts: tuple[int, ...]) -> tuple[int, ...]:
        """Cut drafts before the first that is no token of the model."""
        for place, token_id in enumerate(drafts):
            if not 0 <= token_id < self._facts.vocab_size:
                return drafts[:place]
        return drafts
