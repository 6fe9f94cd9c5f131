"""The engine on random traces: same tokens whatever the schedule, and nothing is ever lost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.interfaces.executor import CacheGroup
from octavo.testing.engine_traces import GROUPS, MODES
from octavo.testing.engines import (
    EngineSetup,
    Outcome,
    StubProposer,
    check_invariants,
    make_engine,
    request,
    run_all,
)
from octavo.testing.stub_executor import expected_output
from octavo_plugins.allocators.contiguous import ContiguousAllocator
from octavo_plugins.schedulers.fcfs import Fcfs
from octavo_plugins.schedulers.priority import Priority

if TYPE_CHECKING:
    from octavo.interfaces.proposer import DraftView

SETUPS = {
    **MODES,
    "groups": EngineSetup(groups=GROUPS),
    "priority": EngineSetup(policy=Priority(), num_blocks=14),
    "contiguous": EngineSetup(
        allocator=partial(ContiguousAllocator, None), num_blocks=97, max_model_len=96
    ),
}


def prompt_of(stem: int, length: int, tail: int) -> list[int]:
    """Return a prompt that shares its beginning with others of the same stem."""
    return [(stem * 101 + i) % 900 for i in range(length)] + [tail]


events = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "abort", "hold", "release", "step", "step"]),
        st.integers(0, 3),  # stem
        st.integers(0, 24),  # prompt length
        st.integers(1, 10),  # max_tokens
        st.integers(0, 5),  # tail, seed, priority, or which request
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("name", SETUPS)
@settings(max_examples=40, deadline=None)
@given(trace=events)
def test_S2_S4_S5_S6_random_traces(name: str, trace: list[tuple[str, int, int, int, int]]) -> None:
    engine = make_engine(replace(SETUPS[name]))
    outcomes: dict[str, Outcome] = {}
    expected: dict[str, list[int]] = {}
    held: set[str] = set()

    def step() -> None:
        for output in engine.step():
            outcomes[output.request_id].take(output)
        check_invariants(engine)

    for action, stem, length, max_tokens, which in trace:
        if action == "add":
            request_id = f"r{len(outcomes)}"
            prompt = prompt_of(stem, length, which)
            outcomes[request_id] = Outcome()
            expected[request_id] = expected_output(prompt, max_tokens, which)
            engine.add(request(request_id, prompt, max_tokens, seed=which, priority=which))
        elif action == "step":
            step()
        elif (request_id := f"r{which}") in outcomes:
            if action == "abort":
                for output in engine.abort([request_id]):
                    outcomes[request_id].take(output)
            elif action == "hold" and outcomes[request_id].finish_reason is None:
                engine.hold(request_id, "test")
                held.add(request_id)
            elif action == "release":
                engine.release(request_id, "test")
    for request_id in held:
        engine.release(request_id, "test")
    for _ in range(3000):
        if not engine.has_work:
            break
        step()
    for request_id, outcome in outcomes.items():
        assert outcome.finish_reason in ("length", "abort")
        wanted = expected[request_id]
        if outcome.finish_reason == "length":
            assert outcome.token_ids == wanted
        else:
            assert outcome.token_ids == wanted[: len(outcome.token_ids)]
    counts = engine.core.allocator.counts()
    assert counts.used == 0
    assert counts.free + counts.cached == counts.total


def test_S7_same_trace_same_schedule() -> None:
    plans = []
    for _ in range(2):
        engine = make_engine(EngineSetup(num_blocks=14))
        run_all(engine, [request(f"r{i}", prompt_of(i % 2, 3 * i, i)) for i in range(8)])
        plans.append(engine.executor.plans)
    assert plans[0] == plans[1]
    assert len(plans[0]) > 8


def test_S8_depth_changes_no_token() -> None:
    requests = [request(f"r{i}", prompt_of(i % 3, 4 * i, i), 5 + i) for i in range(7)]
    results = []
    for depth in (0, 1):
        engine = make_engine(EngineSetup(depth=depth, is_late=bool(depth), num_blocks=20))
        outcomes = run_all(engine, requests)
        results.append({key: outcome.token_ids for key, outcome in outcomes.items()})
    assert results[0] == results[1]


def test_preemption_really_happens_and_duplicates_nothing() -> None:
    engine = make_engine(SETUPS["preempting"])
    outcomes = run_all(engine, [request(f"r{i}", prompt_of(i, 6, 0), 20) for i in range(6)])
    assert engine.stats().preemptions > 0
    for i in range(6):
        assert outcomes[f"r{i}"].token_ids == expected_output(prompt_of(i, 6, 0), 20)


def test_one_copy_of_a_prompt_is_prefilled_once() -> None:
    engine = make_engine(EngineSetup(num_blocks=200, max_num_batched_tokens=256, max_num_seqs=8))
    prompt = prompt_of(1, 63, 5)  # 16 blocks of 4: the last holds the token to compute
    outcomes = run_all(engine, [request(f"r{i}", prompt, 1, seed=i) for i in range(8)])
    assert engine.executor.num_computed_tokens == 64 + 7 * 4
    assert [outcomes[f"r{i}"].outputs[0].num_cached_tokens for i in range(8)] == [0] + [60] * 7


def test_decodes_never_wait_for_a_prefill() -> None:
    engine = make_engine(EngineSetup(max_num_batched_tokens=8, num_blocks=100, max_model_len=200))
    engine.add(request("decoding", [1, 2, 3], 30))
    engine.step()
    engine.add(request("long", prompt_of(0, 80, 0), 2))
    for _ in range(10):
        assert any(output.request_id == "decoding" for output in engine.step())


def test_time_budget_bounds_chunks_and_prefill_goes_on() -> None:
    engine = make_engine(EngineSetup(max_step_ms=2.0, max_num_batched_tokens=64))
    run_all(engine, [request("r", prompt_of(0, 60, 0), 2)])
    sizes = [plan.num_tokens for plan in engine.executor.plans]
    assert max(sizes) == 10  # 1.0 ms fixed and 0.1 a token
    slow = make_engine(EngineSetup(max_step_ms=0.5, max_num_batched_tokens=64))
    run_all(slow, [request("r", prompt_of(0, 60, 0), 2)])
    assert {plan.num_tokens for plan in slow.executor.plans} == {4, 1}  # a block at a time


@pytest.mark.parametrize("policy", [Fcfs(), Priority()])
def test_policy_order(policy: Fcfs | Priority) -> None:
    engine = make_engine(EngineSetup(policy=policy, max_num_seqs=1))
    requests = [request(f"r{i}", [i], 1, priority=-i) for i in range(4)]
    for one in requests:
        engine.add(one)
    order = []
    while engine.has_work:
        order += [output.request_id for output in engine.step()]
    assert order == (
        ["r0", "r1", "r2", "r3"] if isinstance(policy, Fcfs) else ["r3", "r2", "r1", "r0"]
    )


@pytest.mark.parametrize("name", ["drafts", "executor-drafts", "drafts-late"])
def test_drafts_are_accepted_and_save_steps(name: str) -> None:
    requests = [request(f"r{i}", prompt_of(i, 6 + i, 0), 40, seed=i) for i in range(4)]
    plain = make_engine(replace(SETUPS[name], proposer=None, max_executor_drafts=0))
    drafting = make_engine(SETUPS[name])
    for engine in (plain, drafting):
        for request_id, outcome in run_all(engine, requests).items():
            i = int(request_id[1:])
            assert outcome.token_ids == expected_output(prompt_of(i, 6 + i, 0), 40, i)
    assert drafting.stats().accepted_tokens > 10
    assert drafting.stats().draft_tokens > drafting.stats().accepted_tokens
    assert len(drafting.executor.plans) < len(plain.executor.plans)


def test_window_blocks_are_given_back_while_a_request_grows() -> None:
    engine = make_engine(EngineSetup(groups=(CacheGroup(), CacheGroup(8)), num_blocks=80))
    engine.add(request("long", prompt_of(0, 3, 0), 90))
    most = 0
    while engine.has_work:
        engine.step()
        check_invariants(engine)
        for one in engine.core.running:
            most = max(most, sum(block > 0 for block in one.table.groups[1]))
    assert most == 3  # 8 tokens back, in two blocks of 4, and the block being written


class RaisingProposer(StubProposer):
    """Breaks the contract in both ways there are: it raises, and it makes tokens up."""

    def propose(self, request: DraftView, max_tokens: int) -> list[int]:
        if len(request.token_ids) % 2:
            raise KeyError("a table that was never filled")
        return [-1, 10**9][:max_tokens]


def test_a_proposer_that_raises_or_makes_tokens_up_costs_nobody_a_request(caplog) -> None:
    engine = make_engine(EngineSetup(proposer=RaisingProposer()))
    outcomes = run_all(engine, [request(f"r{i}", prompt_of(i, 6, 0), 20, seed=i) for i in range(3)])
    for i in range(3):
        assert outcomes[f"r{i}"].token_ids == expected_output(prompt_of(i, 6, 0), 20, i)
    assert engine.stats().draft_tokens == 0
    assert [one.getMessage().partition(" (told")[0] for one in caplog.records] == [
        "the component RaisingProposer failed in propose"
    ]
