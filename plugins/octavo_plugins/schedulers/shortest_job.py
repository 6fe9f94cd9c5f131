"""The shortest job first (vllm #29366)."""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions


class ShortestJobOptions(ComponentOptions):
    """Options of `shortest-job`."""

    output_weight: float = Field(
        1.0, ge=0, description="how much max_tokens counts; 0: a job is its prompt"
    )
    ageing_tokens_per_s: float = Field(
        0.0, ge=0, description="how much shorter a job counts after a second of waiting"
    )


class ShortestJob(SchedulerPolicy):
    """Serve the request with the fewest tokens to compute; the longest is preempted first.

    Without ageing an endless stream of short jobs starves the long ones.
    """

    Options = ShortestJobOptions

    def __init__(self, options: ShortestJobOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or ShortestJobOptions()

    def order(self, request: RequestView, view: SchedulerView) -> float:
        """Order by length. All who wait age alike, so the keys stay as they are."""
        del view
        length = request.num_prompt_tokens + self._options.output_weight * request.max_tokens
        return length + self._options.ageing_tokens_per_s * request.arrival_s
