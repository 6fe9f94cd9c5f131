"""Keeps a policy's mistakes from everyone's requests.

A policy that raises is told about in the log, once for each of its methods, and the default
decides instead. Only `order` has no default that could be compared with its other keys: a request
that cannot be ordered is refused. Knows policies. Does not know queues, blocks or budgets.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestFailedError
from octavo.interfaces.scheduler import SchedulerPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.request import Request
    from octavo.interfaces.scheduler import RequestView, SchedulerView

logger = logging.getLogger(__name__)


class PolicyGuard:
    """Calls a policy, and decides by default where it raises."""

    def __init__(self, policy: SchedulerPolicy) -> None:
        self.policy = policy
        self.is_order_static = policy.is_order_static
        #: whether `on_tokens` is anything but the default, which takes no notes
        self.takes_notes = policy.on_tokens != SchedulerPolicy.on_tokens.__get__(policy)
        self._default = SchedulerPolicy()
        self._reported: set[str] = set()

    def order(self, request: Request, view: SchedulerView) -> Any:
        """Return the key, or the one that the request has already.

        Raises RequestFailedError for a request that has none yet.
        """
        try:
            return self.policy.order(request, view)
        except Exception as error:
            self._report("order")
            if request.order_key is not None:
                return request.order_key
            raise self.refusal(error) from error

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        """Return whether to admit; yes by default."""
        try:
            return self.policy.admit(request, view)
        except Exception:  # noqa: BLE001 - reported, and decided by default
            self._report("admit")
            return self._default.admit(request, view)

    def victim(self, running: Sequence[RequestView], view: SchedulerView) -> int:
        """Return the index of the victim; the last by default."""
        try:
            return self.policy.victim(running, view)
        except Exception:  # noqa: BLE001 - reported, and decided by default
            self._report("victim")
            return self._default.victim(running, view)

    def chunk(self, request: RequestView, num_tokens: int, view: SchedulerView) -> int:
        """Return how many tokens to advance by; all by default."""
        try:
            return self.policy.chunk(request, num_tokens, view)
        except Exception:  # noqa: BLE001 - reported, and decided by default
            self._report("chunk")
            return num_tokens

    def on_tokens(self, request: RequestView, num_tokens: int, view: SchedulerView) -> None:
        """Pass the note on."""
        try:
            self.policy.on_tokens(request, num_tokens, view)
        except Exception:  # noqa: BLE001 - reported; nothing hangs on it here
            self._report("on_tokens")

    def refusal(self, error: Exception) -> RequestFailedError:
        """Return the error of a request that cannot be ordered."""
        name = type(self.policy).__name__
        return RequestFailedError(
            f"the scheduler {name} cannot order this request",
            f"{type(error).__name__}: {error}",
            "other requests are not affected; the policy has to be mended",
        )

    def _report(self, method: str) -> None:
        if method not in self._reported:
            self._reported.add(method)
            name = type(self.policy).__name__
            logger.error(
                "the scheduler %s failed in %s (told once)",
                name,
                method,
                exc_info=True,  # noqa: LOG014 - called while the exception is being handled
            )
