"""The two queues of the engine, kept in the policy's order.

Knows requests and the policy's `order`. Does not know budgets or blocks.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

from octavo.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine.policy_guard import PolicyGuard
    from octavo.engine.request import Request
    from octavo.interfaces.scheduler import SchedulerView

_KEY = attrgetter("order_key", "sequence_number")


class OrderedQueue:
    """Requests sorted by (policy order, arrival)."""

    def __init__(self, policy: PolicyGuard) -> None:
        self._policy = policy
        self._requests: list[Request] = []

    def add(self, request: Request, view: SchedulerView) -> None:
        """Insert in order. Raises RequestFailedError when the policy cannot order the request."""
        is_new = request.order_key is None
        request.order_key = self._policy.order(request, view)
        try:
            insort(self._requests, request, key=_KEY)
        except FAULTS as error:  # keys of two kinds
            refusal = self._policy.refusal(error)
            if is_new:
                raise refusal from error
            self._requests.append(request)  # whoever is in the engine stays there

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
        except FAULTS as error:
            self._policy.report("order", error)

    def in_turn(self, view: SchedulerView) -> Iterator[Request]:
        """Yield the requests in order; the queue may change meanwhile.

        When the order may change, each is asked about again before its turn: one whose key has
        changed takes its place among those that are left.
        """
        requests = self._requests.copy()
        if self._policy.is_order_static:
            yield from requests
            return
        num_moved = 0  # since the last turn: whatever a policy says, there is one in the end
        while requests:
            request = requests.pop(0)
            if num_moved <= len(requests) and self._has_changed(request, view):
                try:
                    insort(requests, request, key=_KEY)
                except FAULTS as error:
                    self._policy.report("order", error)
                    yield request
                num_moved += 1
            else:
                num_moved = 0
                yield request

    def _has_changed(self, request: Request, view: SchedulerView) -> bool:
        """Ask for the key again; return whether it is another one."""
        before, request.order_key = request.order_key, self._policy.order(request, view)
        return bool(before != request.order_key)

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
