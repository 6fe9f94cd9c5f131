"""Priorities, as vLLM counts them: a lower number is more urgent."""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions


class PriorityOptions(ComponentOptions):
    """Options of `priority`."""

    ageing_s: float | None = Field(
        None, gt=0, description="seconds of waiting that make up for one step of priority"
    )


class Priority(SchedulerPolicy):
    """Serve the lowest `priority` first, equal ones by arrival; the least urgent is preempted.

    Without ageing an endless stream of urgent requests starves the others, as in vLLM.
    """

    Options = PriorityOptions

    def __init__(self, options: PriorityOptions | None = None) -> None:
        super().__init__(options)
        self._ageing_s = options.ageing_s if options else None

    def order(self, request: RequestView, view: SchedulerView) -> tuple[float, int]:
        """Order by priority, then arrival. All who wait age alike, so the keys stay as they are."""
        del view
        urgency = float(request.priority)
        if self._ageing_s is not None:
            urgency += request.arrival_s / self._ageing_s
        return (urgency, request.sequence_number)
