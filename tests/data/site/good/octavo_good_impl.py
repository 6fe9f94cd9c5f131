"""What octavo_good declares; its import is noticed by tests."""

from pydantic import Field

from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.plugin.options import ComponentOptions


class SteadyOptions(ComponentOptions):
    ageing_s: float = Field(1.0, gt=0, description="seconds until a waiting request moves up")
    is_fair: bool = Field(default=False, description="whether to be fair")


class Steady(SchedulerPolicy):
    def __init__(self, options, **context):
        self.options = options
        self.context = context
