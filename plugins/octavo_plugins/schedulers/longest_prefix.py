"""The longest cached prefix first (SGLang's LPM; vllm #42185)."""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions


class LongestPrefixOptions(ComponentOptions):
    """Options of `longest-prefix`."""

    max_wait_s: float = Field(
        10.0, ge=0, description="who has waited so long goes before all who have not, by arrival"
    )
    max_waiting: int = Field(
        128, ge=0, description="where more wait, nothing is looked up: first come, first served"
    )


class LongestPrefix(SchedulerPolicy):
    """Serve the request of which most is cached, before it is evicted.

    So requests that share a beginning follow each other. Of those that run, the one with the
    least to compute again is preempted first.
    """

    Options = LongestPrefixOptions

    is_order_static = False

    def __init__(self, options: LongestPrefixOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or LongestPrefixOptions()

    def order(self, request: RequestView, view: SchedulerView) -> tuple[bool, int]:
        """Order by what is cached, unless the request has waited too long."""
        is_patient = view.now_s - request.arrival_s < self._options.max_wait_s
        if not is_patient or view.num_waiting > self._options.max_waiting:
            return is_patient, 0
        return True, -view.num_cached_tokens(request)
