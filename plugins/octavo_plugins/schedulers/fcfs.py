"""First come, first served."""

from __future__ import annotations

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView


class Fcfs(SchedulerPolicy):
    """Serve requests in the order of their arrival."""

    def order(self, request: RequestView, view: SchedulerView) -> int:
        """Order by arrival."""
        del view
        return request.sequence_number
