"""Priorities, as vLLM counts them: a lower number is more urgent."""

from __future__ import annotations

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView


class Priority(SchedulerPolicy):
    """Serve the lowest `priority` first, equal ones by arrival; the least urgent is preempted."""

    def order(self, request: RequestView, view: SchedulerView) -> tuple[int, int]:
        """Order by priority, then arrival."""
        del view
        return (request.priority, request.sequence_number)
