"""The highest response ratio next: short jobs first, and ever longer ones as they wait.

Brinch Hansen, 1971; for prefills, vllm #33392 and SGLang's `hrrn`.
"""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions


class ResponseRatioOptions(ComponentOptions):
    """Options of `response-ratio`."""

    output_weight: float = Field(
        1.0, ge=0, description="how much max_tokens counts; 0: a job is its prompt"
    )


class ResponseRatio(SchedulerPolicy):
    """Serve the request that has waited longest for its length.

    A job twice as long waits twice as long. None starves: whoever comes later has waited for
    nothing yet.
    """

    Options = ResponseRatioOptions

    is_order_static = False

    def __init__(self, options: ResponseRatioOptions | None = None) -> None:
        super().__init__(options)
        self._output_weight = (options or ResponseRatioOptions()).output_weight

    def order(self, request: RequestView, view: SchedulerView) -> float:
        """Order by seconds of waiting for each token to compute, most first."""
        length = request.num_prompt_tokens + self._output_weight * request.max_tokens
        return (request.arrival_s - view.now_s) / length
