"""The policies that people asked for, each on the real core: who starts first."""

from __future__ import annotations

import pytest

from octavo.config.resolve import resolve
from octavo.errors import RequestError
from octavo.frontend.request_params import DeclaredParams
from octavo.plugin.request_params import declared_params
from octavo.sampling_params import SamplingParams
from simulated_engines import made_up, make_engine, order_of, request, run, started

ONE_SEAT = {"max_num_seqs": 1}
SESSION = made_up("history", 32)


def busy(scheduler: object, **settings: object):
    """Return an engine whose seats are all taken for the next 30 steps."""
    sizes = {**ONE_SEAT, **settings}
    engine = make_engine(scheduler, **sizes)
    for seat in range(sizes["max_num_seqs"]):
        engine.add(request(f"busy{seat}", 4, 30))
    engine.step()
    return engine


# ---------------------------------------------------------------------- jobs by length


def test_shortest_job_first():
    jobs = [request("long", 40, 40), request("short", 4, 4), request("middle", 10, 30)]
    assert order_of(busy("shortest-job"), jobs)[1:] == ["short", "middle", "long"]


def test_a_job_may_be_its_prompt_alone():
    jobs = [request("short answer", 20, 2), request("short prompt", 4, 60)]
    assert order_of(busy("shortest-job"), jobs)[1:] == ["short answer", "short prompt"]
    engine = busy({"use": "shortest-job", "output-weight": 0})
    assert order_of(engine, jobs)[1:] == ["short prompt", "short answer"]


def test_shortest_jobs_age_if_wanted():
    jobs = [request("long", 40, 40), request("later", 4, 4, arrival_s=1.0)]
    assert order_of(busy("shortest-job"), jobs)[1:] == ["later", "long"]
    engine = busy({"use": "shortest-job", "ageing-tokens-per-s": 100})
    assert order_of(engine, jobs)[1:] == ["long", "later"]


def test_the_shortest_residual_is_a_long_prompt_that_is_cached():
    cached = [*SESSION, 1, 2, 3]
    jobs = [request("short", 20, 8), request("warm", cached, 8), request("shorter", 2, 8)]
    options = {"use": "shortest-residual", "step-tokens": 1}
    assert order_of(warm(options), jobs)[2:] == ["shorter", "warm", "short"]
    options["max-waiting"] = 0
    assert order_of(warm(options), jobs)[2:] == ["shorter", "short", "warm"]


def test_who_waited_too_long_goes_before_shorter_residuals():
    jobs = [request("old", 60, 8), request("new", 4, 8, arrival_s=0.3)]
    assert order_of(busy("shortest-residual"), jobs)[1:] == ["new", "old"]
    engine = busy({"use": "shortest-residual", "max-wait-s": 0.25})
    assert order_of(engine, jobs)[1:] == ["old", "new"]


def test_the_response_ratio_rises_faster_for_short_jobs():
    jobs = [request("long", 60, 40), request("short", 4, 4, arrival_s=0.2)]
    assert order_of(busy("response-ratio"), jobs)[1:] == ["short", "long"]
    jobs = [request("long", 60, 40), request("short", 4, 4, arrival_s=0.34)]
    assert order_of(busy("response-ratio"), jobs)[1:] == ["long", "short"]


# ---------------------------------------------------------------------- the cache


def warm(scheduler: object, **settings: object):
    """Return an engine whose one seat is taken, after a session was served."""
    engine = make_engine(scheduler, **ONE_SEAT, **settings)
    engine.add(request("before", SESSION, 2, session_id="s"))
    run(engine)
    engine.add(request("busy", 4, 10))
    engine.step()
    return engine


def test_the_longest_prefix_first():
    jobs = [
        request("cold", 30, 4),
        request("half", [*SESSION[:16], *made_up("x", 10)], 4),
        request("all", [*SESSION, 5], 4),
    ]
    assert order_of(warm("longest-prefix"), jobs)[2:] == ["all", "half", "cold"]
    assert order_of(warm("fcfs"), jobs)[2:] == ["cold", "half", "all"]


@pytest.mark.parametrize("option", [{"max-waiting": 2}, {"max-wait-s": 0}])
def test_the_longest_prefix_does_not_matter_in_a_long_queue_nor_for_ever(option):
    jobs = [request("cold", 30, 4), request("all", [*SESSION, 5], 4), request("last", 4, 4)]
    engine = warm({"use": "longest-prefix", **option})
    assert order_of(engine, jobs)[2:] == ["cold", "all", "last"]


def test_prompts_that_are_scored_hit_nothing():
    engine = warm("longest-prefix")
    scored = request("scored", [*SESSION, 5], 4)
    scored.params.prompt_logprobs = 1
    engine.add(scored)
    assert engine.core.view.num_cached_tokens(engine.core.waiting.requests[0]) == 0


def test_a_warm_session_has_a_head_start():
    jobs = [
        request("cold", 8, 4, arrival_s=0.5),
        request("same prompt", [*SESSION, 5], 4, arrival_s=0.6),
        request("goes on", [*SESSION, 6], 4, arrival_s=1.0, session_id="s"),
    ]
    assert order_of(warm("session-affinity"), jobs)[2:] == ["goes on", "cold", "same prompt"]
    engine = warm({"use": "session-affinity", "head-start-s": 0.45})
    assert order_of(engine, jobs)[2:] == ["cold", "goes on", "same prompt"]


def test_a_session_without_cached_blocks_has_none():
    jobs = [
        request("cold", 8, 4, arrival_s=0.5),
        request("other text", 40, 4, arrival_s=1.0, session_id="s"),
    ]
    assert order_of(warm("session-affinity"), jobs)[2:] == ["cold", "other text"]


def test_sessions_cool_down_and_are_forgotten():
    engine = warm({"use": "session-affinity", "ttl-s": 0.05})
    for number in range(5):
        engine.add(request(f"other{number}", 8, 8, session_id=f"o{number}"))
    engine.add(request("goes on", [*SESSION, 6], 4, session_id="s"))
    run(engine)
    assert started(engine)[-1] == "goes on"
    assert len(engine.core.policy.policy._served_s) <= 2


# ---------------------------------------------------------------------- classes and deadlines


def test_the_earliest_deadline_first():
    jobs = [
        request("batch", 8, 4, extra={"service_class": "batch"}),
        request("standard", 8, 4),
        request("interactive", 8, 4, extra={"service_class": "interactive"}),
        request("now", 8, 4, extra={"ttft_ms": 50.0}),
        request("late", 8, 4, arrival_s=5.0, extra={"service_class": "interactive"}),
    ]
    expected = ["now", "interactive", "standard", "late", "batch"]
    assert order_of(busy("deadline"), jobs)[1:] == expected


def test_long_prompts_may_have_later_deadlines():
    jobs = [request("long", 60, 4), request("short", 4, 4, arrival_s=0.1)]
    assert order_of(busy("deadline"), jobs)[1:] == ["long", "short"]
    engine = busy({"use": "deadline", "per-token-ms": 5})
    assert order_of(engine, jobs)[1:] == ["short", "long"]


def test_classes_of_service_have_their_order_and_age():
    jobs = [
        request("batch", 8, 4, extra={"service_class": "batch"}),
        request("standard", 8, 4),
        request("interactive", 8, 4, extra={"service_class": "interactive"}),
        request("late", 8, 4, arrival_s=35.0, extra={"service_class": "interactive"}),
    ]
    expected = ["interactive", "standard", "late", "batch"]
    assert order_of(busy("qos"), jobs)[1:] == expected


def test_seats_are_left_to_higher_classes():
    engine = make_engine({"use": "qos", "reserved": 0.25}, max_num_seqs=4)
    for number in range(6):
        engine.add(request(f"batch{number}", 4, 30, extra={"service_class": "batch"}))
    engine.step()
    assert len(started(engine)) == 2
    for number in range(3):
        engine.add(request(f"standard{number}", 4, 30))
    engine.add(request("urgent", 4, 30, extra={"service_class": "interactive"}))
    engine.step()
    assert started(engine)[2:] == ["urgent", "standard0"]
    run(engine)
    assert len(started(engine)) == 10


def test_one_batch_at_least_has_a_seat():
    engine = make_engine("qos", **ONE_SEAT)
    engine.add(request("batch", 4, 3, extra={"service_class": "batch"}))
    run(engine)
    assert started(engine) == ["batch"]


# ---------------------------------------------------------------------- what a request may say


@pytest.mark.parametrize(
    ("kind", "name", "given"),
    [
        ("scheduler", "deadline", {"ttft_ms": 100.0, "service_class": "batch"}),
        ("scheduler", "qos", {"service_class": "interactive"}),
        ("eviction", "retention", {"retention_priority": 80, "retention_s": 30.0}),
    ],
)
def test_parameters_are_checked_when_a_request_comes(kind, name, given):
    declared = DeclaredParams(declared_params(resolve(overrides={kind: name}).in_use))
    assert declared.checked(SamplingParams(extra_args=given), None) == given
    for key in given:
        with pytest.raises(RequestError) as refused:
            declared.checked(SamplingParams(extra_args={key: "sometimes"}), None)
        assert refused.value.param == key
    usual = DeclaredParams(declared_params(resolve().in_use))
    with pytest.raises(RequestError, match="no component in use declares"):
        usual.checked(SamplingParams(extra_args=given), None)


ASKED_FOR = (
    "fair", "longest-prefix", "deadline", "shortest-job", "shortest-residual", "response-ratio",
    "session-affinity", "qos",
)  # fmt: skip


@pytest.mark.parametrize("name", ASKED_FOR)
def test_memory_that_runs_out_preempts_and_loses_nobody(name):
    engine = make_engine(name, num_blocks=20)
    for number in range(12):
        engine.add(
            request(
                f"r{number}", 5 + number, 20, user=f"u{number % 3}", session_id=f"s{number % 2}"
            )
        )
    run(engine)
    assert engine.stats().preemptions > 0
    assert engine.stats().finished == {"length": 12}
    assert engine.core.allocator.counts().used == 0


def test_keys_that_cannot_be_compared_with_new_ones_keep_the_queue_going(caplog):
    engine = make_engine("fair", **ONE_SEAT)
    policy, asked = engine.core.policy.policy, []

    def order(request, view):
        asked.append(request)
        return "text" if len(asked) > 8 else 1.0

    policy.order = order
    for number in range(4):
        engine.add(request(f"r{number}", 4, 4))
    run(engine)
    assert sorted(started(engine)) == ["r0", "r1", "r2", "r3"]


def test_keys_that_grow_each_time_end_a_step_all_the_same():
    engine = make_engine("fair")
    policy, asked = engine.core.policy.policy, []

    def order(request, view):
        asked.append(request)
        return float(len(asked))

    policy.order = order
    assert len(order_of(engine, [request(f"r{number}", 4, 4) for number in range(9)])) == 9
