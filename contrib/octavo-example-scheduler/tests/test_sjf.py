"""What `sjf` promises. Needs nothing but octavo and pytest."""

from dataclasses import dataclass

import pytest

import octavo_example_scheduler
from octavo.interfaces.scheduler import SchedulerView
from octavo.plugin.build import build
from octavo.plugin.catalogue import Entry
from octavo_example_scheduler.sjf import ShortestJobFirst, ShortestJobFirstOptions


@dataclass
class Request:
    num_prompt_tokens: int
    max_tokens: int
    arrival_s: float = 0.0


def order_of(requests, **options):
    policy = ShortestJobFirst(ShortestJobFirstOptions(**options))
    return sorted(requests, key=lambda request: policy.order(request, SchedulerView()))


def test_the_shortest_job_goes_first():
    long, short, middle = Request(900, 100), Request(10, 5), Request(10, 500)

    assert order_of([long, short, middle]) == [short, middle, long]


def test_a_job_that_waited_long_enough_is_not_overtaken():
    long = Request(400, 100, arrival_s=0.0)
    soon, late = Request(10, 10, arrival_s=4.0), Request(10, 10, arrival_s=5.0)

    assert order_of([late, long, soon], ageing_tokens_per_s=100) == [soon, long, late]


def test_ageing_must_be_positive():
    with pytest.raises(ValueError, match="greater than 0"):
        ShortestJobFirstOptions(ageing_tokens_per_s=0)


def test_what_is_declared_can_be_built():
    (component,) = octavo_example_scheduler.plugin.octavo_schedulers()
    entry = Entry(kind="scheduler", component=component, provider="here")

    policy = build(entry, {"ageing-tokens-per-s": "7"})

    assert isinstance(policy, ShortestJobFirst)
    assert policy.options.ageing_tokens_per_s == 7
