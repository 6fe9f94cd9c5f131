"""The two queues of the engine, kept in the policy's order.

Knows requests and the policy's `order`. Does not know budgets or blocks.
"""

from __future__ import annotations

import logging
from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine.policy_guard import PolicyGuard
    from octavo.engine.request import Request
    from octavo.interfaces.scheduler import SchedulerView

logger = logging.getLogger(__name__)
_KEY = attrgetter("order_key", "sequence_number")


class OrderedQueue:
    """Requests sorted by (policy order, arrival)."""

    def __init__(self, policy: PolicyGuard) -> None:
        self._policy = policy
        self._requests: list[Request] = []

    def add(self, request: Request, view: SchedulerView) -> None:
        """Insert in order. Raises RequestFailedError when the policy cannot order the request."""
        request.order_key = self._policy.order(request, view)
        try:
            insort(self._requests, request, key=_KEY)
        except TypeError as error:  # keys of two kinds
            raise self._policy.refusal(error) from error

    def remove(self, request: Request) -> None:
        """Take out; raises ValueError if absent."""
        self._requests.remove(request)

    def refresh(self, view: SchedulerView) -> None:
        """Sort again when the policy's order may change while a request waits."""
        if self._policy.is_order_static or not self._requests:
            return
        for request in self._requests:
            request.order_key = self._policy.order(request, view)
        try:
            self._requests.sort(key=_KEY)
        except TypeError as error:
            logger.warning("the queue keeps its order: %s", self._policy.refusal(error))

    def snapshot(self) -> list[Request]:
        """Return a copy, in order."""
        return self._requests.copy()

    @property
    def requests(self) -> list[Request]:
        """Return the live list: not to be changed, not to be kept."""
        return self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)
