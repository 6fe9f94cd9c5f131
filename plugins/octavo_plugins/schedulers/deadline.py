"""Earliest deadline first: a request says when its first token is due (vllm #53571)."""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions
from octavo_plugins.schedulers.params import DeadlineParams


class DeadlineOptions(ComponentOptions):
    """Options of `deadline`: what the first token of a class of requests may take."""

    interactive_ms: float = Field(500.0, gt=0, description="due time of class interactive")
    standard_ms: float = Field(2_000.0, gt=0, description="due time of class standard")
    batch_ms: float = Field(60_000.0, gt=0, description="due time of class batch")
    per_token_ms: float = Field(
        0.0, ge=0, description="what each token of a prompt adds, as long prompts take longer"
    )


class Deadline(SchedulerPolicy):
    """Serve what is due first. A request says `ttft_ms`, or its `service_class`.

    Deadlines are soft: what is late already comes first of all. Nothing starves, as everything is
    due some time. Of those that run, the last to be due is preempted first.
    """

    Options = DeadlineOptions

    def __init__(self, options: DeadlineOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or DeadlineOptions()

    def order(self, request: RequestView, view: SchedulerView) -> float:
        """Order by when the first token is due, in seconds."""
        del view
        asked = DeadlineParams.read(request.params)
        of_class: float = getattr(self._options, f"{asked.service_class}_ms")
        due_ms = of_class + self._options.per_token_ms * request.num_prompt_tokens
        return request.arrival_s + (due_ms if asked.ttft_ms is None else asked.ttft_ms) / 1000
