"""The fewest tokens left to compute first; what is cached is not left (vllm #51375, #53277)."""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions


class ShortestResidualOptions(ComponentOptions):
    """Options of `shortest-residual`."""

    output_weight: float = Field(
        0.0, ge=0, description="how much max_tokens counts; 0: only what is left of the prompt"
    )
    max_wait_s: float = Field(
        10.0, ge=0, description="who has waited so long goes before all who have not, by arrival"
    )
    step_tokens: int = Field(16, ge=1, description="smaller differences do not count")
    max_waiting: int = Field(128, ge=0, description="where more wait, no cache is looked up")


class ShortestResidual(SchedulerPolicy):
    """Serve the request with the least left: a long prompt that is cached is a short job.

    Of those that run, the one with the most left is preempted first.
    """

    Options = ShortestResidualOptions

    is_order_static = False

    def __init__(self, options: ShortestResidualOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or ShortestResidualOptions()

    def order(self, request: RequestView, view: SchedulerView) -> tuple[bool, float]:
        """Order by what is left, unless the request has waited too long."""
        options = self._options
        if view.now_s - request.arrival_s >= options.max_wait_s:
            return False, 0.0
        left = request.num_prompt_tokens + options.output_weight * request.max_tokens
        if view.num_waiting <= options.max_waiting:
            left -= view.num_cached_tokens(request)
        return True, left // options.step_tokens
