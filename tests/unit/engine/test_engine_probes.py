"""What the kit's probes found: cases that random traces broke, as they were told."""

from __future__ import annotations

from dataclasses import replace

from octavo.testing.engine_traces import MODES, play
from octavo.testing.engines import EngineSetup, StubProposer, make_engine, request
from octavo.testing.probe_policy import Habits, ProbePolicy
from octavo.testing.searching import Story
from octavo.testing.trace_requests import Event


def test_prompt_logprobs_come_though_the_request_was_preempted_meanwhile() -> None:
    """The step with the first token is in flight when another takes the request's blocks."""
    policy = ProbePolicy(Habits("last-first", "first", "more"))
    short = Event("burst", 0, 1, 12, 0, "scored")
    events = [
        short,
        Event("step", 0, 0, 1, 0),
        Event("hold", 0, 0, 1, 3),
        Event("add", 1, 10, 11, 1, "error"),
        Event("burst", 3, 23, 12, 5, "score-only"),
        short,
    ]

    run = play(replace(MODES["late-preempting"], policy=policy), events, Story("S6"))

    assert run.engine.stats().preemptions > 0
    for one in run.requests.values():
        scored = [output.prompt_logprobs for output in one.outcome.outputs]
        assert one.finish_reason == "error" or len(list(filter(None, scored))) == 1


def drafted_step(**setup: object) -> list[int]:
    """The shares of three requests in a step that has room for four tokens."""
    fields = {"proposer": StubProposer(), "max_num_seqs": 3, **setup}
    engine = make_engine(replace(EngineSetup(), **fields))
    for number in range(3):
        engine.add(request(f"r{number}", [number], 30, seed=number))
    while engine.has_work:
        engine.step()
        plan = engine.executor.plans[-1]
        if any(one.drafts for one in plan.advances) and len(engine.core.running) == 3:
            return [one.num_tokens for one in plan.advances]
    return []


def test_drafts_leave_a_token_to_each_that_has_its_turn_later() -> None:
    assert len(drafted_step(max_num_batched_tokens=4)) == 3


def test_a_step_stays_within_its_time_when_those_behind_a_draft_have_their_token() -> None:
    shares = drafted_step(max_step_ms=1.4)  # 1 ms, and 0.1 ms for each token

    assert len(shares) == 3
    assert sum(shares) == 4
