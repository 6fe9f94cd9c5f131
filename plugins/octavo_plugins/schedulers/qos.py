"""Classes of service: the more urgent come first and find seats free (vllm #53277, #30256)."""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions
from octavo_plugins.schedulers.params import ServiceParams

_RANKS = ("interactive", "standard", "batch")


class QosOptions(ComponentOptions):
    """Options of `qos`."""

    ageing_s: float = Field(30.0, gt=0, description="seconds of waiting that make up for one class")
    reserved: float = Field(
        0.1, ge=0, le=0.4, description="share of seats that each class leaves to those above it"
    )


class Qos(SchedulerPolicy):
    """Serve interactive requests before standard ones, and these before batches, with ageing.

    `reserved` of max-num-seqs are for interactive requests alone, as much again for all but
    batches, so that an urgent request need not wait for an end. Batches are preempted first.
    """

    Options = QosOptions

    def __init__(self, options: QosOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or QosOptions()

    def order(self, request: RequestView, view: SchedulerView) -> float:
        """Order by class, each worth `ageing_s`, and arrival."""
        del view
        return request.arrival_s + self._options.ageing_s * _rank(request)

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        """Admit while the class and those below it have not taken all of their seats."""
        rank = _rank(request)
        num_taken = sum(_rank(one) >= rank for one in view.running)
        return num_taken < max(1.0, view.max_num_seqs * (1 - self._options.reserved * rank))


def _rank(request: RequestView) -> int:
    return _RANKS.index(ServiceParams.read(request.params).service_class)
