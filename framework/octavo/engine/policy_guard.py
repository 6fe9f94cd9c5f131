"""Keeps a policy's mistakes from everyone's requests.

A policy that raises, or answers with what is no answer, is told about in the log, once for each
method and type of error, and the default decides instead. Only `order` has no default that could
be compared with its other keys: a request that cannot be ordered is refused.

Knows policies. Does not know queues, blocks or budgets.
"""

from __future__ import annotations

import logging
from operator import index
from typing import TYPE_CHECKING, Any

from octavo.faults import FAULTS, Fault, FaultLog
from octavo.interfaces.scheduler import SchedulerPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.request import Request
    from octavo.errors import RequestFailedError
    from octavo.interfaces.scheduler import RequestView, SchedulerView

logger = logging.getLogger(__name__)


class PolicyGuard:
    """Calls a policy, and decides by default where it fails."""

    def __init__(self, policy: SchedulerPolicy) -> None:
        self.policy = policy
        self.is_order_static = policy.is_order_static
        #: whether `on_tokens` is anything but the default, which takes no notes
        self.takes_notes = policy.on_tokens != SchedulerPolicy.on_tokens.__get__(policy)
        self._default = SchedulerPolicy()
        self._log = FaultLog(logger)

    def order(self, request: Request, view: SchedulerView) -> Any:
        """Return the key, or the one that the request has already.

        Raises RequestFailedError for a request that has none yet.
        """
        before = request.order_key
        try:
            key = self.policy.order(request, view)
            others = [before] if before is not None else _keys_of(view)
            sorted((key, key, *others))  # raises what comparing it would
            if key != key:  # noqa: PLR0124 - a NaN has no place in any order
                _refuse(key, "a key that can be ordered")
        except FAULTS as error:
            refusal = self.refusal(error)
            if before is not None:
                return before
            raise refusal from error
        return key

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        """Return whether to admit; yes by default."""
        try:
            answer = self.policy.admit(request, view)
            return bool(answer) if answer in (True, False) else _refuse(answer, "True or False")
        except FAULTS as error:
            self.report("admit", error)
            return self._default.admit(request, view)

    def victim(self, running: Sequence[RequestView], view: SchedulerView) -> int:
        """Return the index of the victim; the last by default."""
        try:
            return index(self.policy.victim(running, view))
        except FAULTS as error:
            self.report("victim", error)
            return self._default.victim(running, view)

    def chunk(self, request: RequestView, num_tokens: int, view: SchedulerView) -> int:
        """Return how many tokens to advance by; all by default."""
        try:
            return index(self.policy.chunk(request, num_tokens, view))
        except FAULTS as error:
            self.report("chunk", error)
            return num_tokens

    def on_tokens(self, request: RequestView, num_tokens: int, view: SchedulerView) -> None:
        """Pass the note on."""
        try:
            self.policy.on_tokens(request, num_tokens, view)
        except FAULTS as error:
            self.report("on_tokens", error)

    def refusal(self, error: BaseException) -> RequestFailedError:
        """Return the error of a request that cannot be ordered."""
        return self.report("order", error).refusal("cannot order this request")

    def report(self, method: str, error: BaseException) -> Fault:
        """Tell the log what a method raised. Raises it again when a signal brought it."""
        fault = Fault.of(self.policy, method, error)
        self._log.tell(fault)
        return fault


def _keys_of(view: SchedulerView) -> list[Any]:
    """Return a key of each queue to compare a new one with."""
    queues: Any = (view.running, view.waiting)  # of `Request`, which has the key as well
    return [queue[0].order_key for queue in queues if queue]


def _refuse(answer: object, wanted: str) -> Any:
    message = f"it returned {answer!r:.80}, not {wanted}"
    raise TypeError(message)
