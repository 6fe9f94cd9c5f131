"""Policies that make the mechanism work: keys that move, odd victims, small chunks, refusals.

A whole core is tried with them; what they answer out of bounds the core has to survive.

Knows the interface of policies. Does not know queues, budgets or cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from octavo.interfaces.scheduler import SchedulerPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.scheduler import RequestView, SchedulerView

_KEYS = ("arrival", "last-first", "ageing", "served")
_VICTIMS = ("last", "first", "below", "above")
_CHUNKS = ("all", "half", "none", "more")


class Habits(NamedTuple):
    """How a probe decides."""

    keys: str = "arrival"
    victim: str = "last"
    chunk: str = "all"
    is_choosy: bool = False


def habits() -> st.SearchStrategy[Habits]:
    """Return all habits, the default's first."""
    return st.builds(
        Habits,
        st.sampled_from(_KEYS),
        st.sampled_from(_VICTIMS),
        st.sampled_from(_CHUNKS),
        st.booleans(),
    )


class ProbePolicy(SchedulerPolicy):
    """Decides by habit, and by what it is shown alone."""

    def __init__(self, how: Habits) -> None:
        super().__init__()
        self.how = how
        self.is_order_static = how.keys in {"arrival", "last-first"}

    def order(self, request: RequestView, view: SchedulerView) -> Any:
        """Return a key: one that stays, falls at its own pace, or grows with what is admitted."""
        if self.how.keys == "arrival":
            return request.sequence_number
        if self.how.keys == "last-first":
            return -request.sequence_number
        if self.how.keys == "ageing":
            return 20 * request.priority - (view.now_s - request.arrival_s) * request.priority
        tenant = request.metadata.get("tenant")
        return sum(1 for one in view.running if one.metadata.get("tenant") == tenant)

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        """Return whether it is its turn: a choosy one refuses every third, for a while."""
        is_refused = self.how.is_choosy and (request.sequence_number + view.step) % 3 == 0
        return not is_refused or view.num_running == 0

    def victim(self, running: Sequence[RequestView], view: SchedulerView) -> int:
        """Return an index, not always one of `running`."""
        del view
        indices = {"last": len(running) - 1, "first": 0, "below": -2, "above": len(running)}
        return indices[self.how.victim]

    def chunk(self, request: RequestView, num_tokens: int, view: SchedulerView) -> int:
        """Return a number of tokens, not always one that fits."""
        del request, view
        sizes = {"all": num_tokens, "half": num_tokens // 2, "none": 0, "more": num_tokens + 7}
        return sizes[self.how.chunk]
