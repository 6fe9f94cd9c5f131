"""The stock schedulers keep their promises."""

from octavo.testing import SchedulerSuite


class TestFcfs(SchedulerSuite):
    component = "fcfs"


class TestPriority(SchedulerSuite):
    component = "priority"


class TestAgeingPriority(SchedulerSuite):
    component = "priority"
    options = {"ageing-s": 5}
