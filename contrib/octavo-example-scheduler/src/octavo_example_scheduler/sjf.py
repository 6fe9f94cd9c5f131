"""Shortest job first, with ageing.

Knows how long a request may get. Does not know blocks, tensors or budgets: the engine keeps
those, whatever order a policy asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from octavo import ComponentOptions
from octavo.interfaces.scheduler import SchedulerPolicy

if TYPE_CHECKING:
    from octavo.interfaces.scheduler import RequestView, SchedulerView


class ShortestJobFirstOptions(ComponentOptions):
    """Options of `sjf`."""

    ageing_tokens_per_s: float = Field(
        100.0, gt=0, description="how many tokens of length a second of waiting makes up for"
    )


class ShortestJobFirst(SchedulerPolicy):
    """Serve the request with the fewest tokens to compute first.

    A job's length is its prompt and all it may answer. Every second of waiting takes
    `ageing_tokens_per_s` off it, so a job of L tokens is overtaken only by those that come
    within L / ageing_tokens_per_s seconds. As all who wait age alike, their order stays.
    """

    is_order_static = True

    def __init__(self, options: ShortestJobFirstOptions) -> None:
        super().__init__(options)
        self._ageing_tokens_per_s = options.ageing_tokens_per_s

    def order(self, request: RequestView, view: SchedulerView) -> float:
        """Order by length less ageing; that every key shrinks by the same cancels out."""
        del view
        length_tokens = request.num_prompt_tokens + request.max_tokens
        return length_tokens + self._ageing_tokens_per_s * request.arrival_s
