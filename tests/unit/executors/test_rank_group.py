"""Ranks that end, fail or disagree: who is blamed, and that nobody waits or is left behind."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import fake_rank
from octavo.engine.engine import Engine
from octavo.engine.plan import RowAdvance, RowSpec, RowStart, StepPlan
from octavo.errors import EngineDeadError, GrammarError, ModelLoadError
from octavo.interfaces.grammar import GrammarSpec
from octavo.sampling_params import SamplingParams
from octavo_plugins.executors import rank_group
from octavo_plugins.executors import rank_wire as wire
from octavo_plugins.executors.rank_group import RankGroup
from octavo_plugins.executors.ranks import RanksExecutor

SIZE = 3
PLAN = wire.Run(StepPlan(1, advances=[RowAdvance(0, 0, 1, [[1]], is_sampling=True)]))


@pytest.fixture
def make_group(monkeypatch):
    """Return a function that starts ranks which do what a script says, by rank and message."""
    monkeypatch.setattr(rank_group, "COMMAND", (sys.executable, str(Path(fake_rank.__file__))))
    groups = []

    def make(script=None, *, is_loaded=True):
        group = RankGroup(SIZE)
        groups.append(group)
        config_json = json.dumps({str(rank): one for rank, one in (script or {}).items()})
        call = group.call([wire.Load(config_json, rank, SIZE, "") for rank in range(SIZE)])
        if is_loaded:
            call.result(20)
        group.loading = call
        return group

    yield make
    for group in groups:
        group.close()
        group.close()
        for member in group._members:
            assert member.child.process.poll() is not None


def failure_of(call) -> list[str]:
    with pytest.raises(EngineDeadError) as error:
        call.result(20)
    return str(error.value).splitlines()


def test_all_answer_and_in_order(make_group):
    group = make_group()
    first, second = group.call_all(PLAN), group.call_all(wire.Rehearse(1, 0))
    assert [type(one) for one in second.result(20)] == [wire.Rehearsed] * SIZE
    replies = first.result(20)
    assert replies[0].result.token_ids == [(7,)]
    assert [one.result for one in replies[1:]] == [None, None]


def test_a_rank_that_exits_is_named_with_its_code(make_group):
    group = make_group({1: {"run": 5}, 0: {"run": "lose-peer"}, 2: {"run": "silent"}})
    assert failure_of(group.call_all(PLAN)) == [
        "a rank of the split model ended",
        "  rank 1 of 3: it exited with code 5",
    ]
    start_s = time.monotonic()
    assert failure_of(group.call_all(PLAN))[1] == "  rank 1 of 3: it exited with code 5"
    assert time.monotonic() - start_s < 1


def test_a_rank_that_raises_is_blamed_and_not_those_that_lost_it(make_group):
    group = make_group({r: {"run": "fail" if r == 2 else "lose-peer"} for r in range(SIZE)})
    assert failure_of(group.call_all(PLAN)) == [
        "a rank of the split model ended",
        "  rank 2 of 3: ValueError: oh",
    ]


def test_a_rank_that_ends_before_it_is_loaded(make_group):
    group = make_group({2: {"load": 4}}, is_loaded=False)
    assert failure_of(group.loading)[1] == "  rank 2 of 3: it exited with code 4"


def test_the_error_of_a_rank_that_cannot_load_is_raised_as_it_is(make_group):
    group = make_group({1: {"load": "refuse"}}, is_loaded=False)
    with pytest.raises(ModelLoadError, match="bad tensor\n  a fact"):
        group.loading.result(20)
    assert not any(psutil.pid_exists(member.child.pid) for member in group._members)


def test_a_rank_that_dies_while_nobody_waits_is_noticed(make_group):
    group = make_group()
    group._members[1].child.process.kill()
    group._thread.join(5)
    assert "rank 1 of 3: it was ended by signal 9 (SIGKILL)" in failure_of(group.call_all(PLAN))[1]


def test_an_idle_engine_is_told_of_a_dead_rank_at_once(make_executor):
    executor = make_executor()
    told = threading.Event()
    core = SimpleNamespace(running=(), waiting=(), limits=SimpleNamespace(block_size=16))
    engine = Engine(core, executor, info=None)
    engine.on_ready(told.set)
    assert not engine.has_work
    executor._group._members[1].child.process.kill()
    assert told.wait(10)
    assert engine.has_work
    with pytest.raises(EngineDeadError, match=r"rank 1 of 3: it was ended by signal 9"):
        engine.step()


def test_closing_is_no_failure(make_executor):
    executor = make_executor()
    executor.close()
    assert not executor.failed.done()


def test_an_answer_that_cannot_be_read_ends_the_ranks(make_group):
    group = make_group({1: {"run": "garbage"}})
    assert failure_of(group.call_all(PLAN))[0] == "an answer of a rank cannot be read"


def test_who_waits_when_the_group_is_closed_is_told(make_group):
    group = make_group({1: {"run": "silent"}})
    call = group.call_all(PLAN)
    resource = group.prepare(wire.Prepare(1, GrammarSpec("json_object")))
    assert resource.result(20) == "digest"
    group.close()
    assert failure_of(call) == ["the executor is closed"]


def test_a_resource_is_ready_once_all_have_it(make_group):
    group = make_group({1: {"prepare": "reject"}})
    with pytest.raises(GrammarError, match="no such form"):
        group.prepare(wire.Prepare(1, GrammarSpec("json_object"))).result(20)
    assert [type(one) for one in group.call_all(PLAN).result(20)] == [wire.Stepped] * SIZE


@pytest.fixture
def make_executor(make_group):
    def make(script=None):
        executor = RanksExecutor()
        executor._group = make_group(script)
        executor._group._failed = executor.failed
        return executor

    return make


def test_ranks_that_disagree_end_the_engine(make_executor):
    handle = make_executor({2: {"run": "differ"}}).submit(PLAN.plan)
    with pytest.raises(EngineDeadError, match=r"the ranks disagree .*: \[0, 0, 2\]"):
        handle.result()


def test_what_cannot_be_sent_is_the_error_of_its_request(make_executor):
    executor = make_executor()
    for step, (params, text) in enumerate(
        [
            (SamplingParams(extra_args={"x": object()}), "Encoding objects of type object"),
            (SamplingParams(bad_words=["\ud800"]), "surrogates not allowed"),
            (SamplingParams(logits_processors=[print]), "logits_processors are callables"),
            (SamplingParams(stop=["\ud800"]), None),
        ]
    ):
        start = RowStart(0, f"r{step}", [1], RowSpec(params, 0, 0, 1))
        plan = StepPlan(step, [0] if step else [], starts=[start], advances=PLAN.plan.advances)
        result = executor.submit(plan).result()
        if text is None:
            assert (result.token_ids, result.errors) == ([(7,)], {})
        else:
            assert result.token_ids == [()]
            assert text in result.errors[0].text


def test_what_sequences_of_a_request_share_goes_over_once(make_executor):
    """Biases of many tokens, for many sequences: the message grows with the requests alone."""
    shared = SamplingParams(logit_bias=dict.fromkeys(range(2000), 1.0))
    other = SamplingParams(min_p=0.5)
    bad_words = ((1, 2),)

    def plan_of(num_seqs):
        specs = [RowSpec(shared, 10 + i, i, 1, (), bad_words) for i in range(num_seqs)]
        starts = [
            RowStart(row, f"r{row}", [row], spec)
            for row, spec in enumerate([*specs, RowSpec(other, 3, 0, 1)])
        ]
        return StepPlan(1, starts=starts)

    executor = make_executor()
    one, many = (executor._message(plan_of(n)) for n in (1, 64))
    assert len(wire.encode(many)) < len(wire.encode(one)) + 64 * 40
    read = wire.plan_of(wire.decode_to_rank(wire.encode(many)[4:]))
    assert read == plan_of(64)
    assert len({id(start.spec.params) for start in read.starts}) == 2


def test_all_sequences_of_a_request_that_cannot_be_sent_fail(make_executor):
    params = SamplingParams(extra_args={"x": object()})
    starts = [RowStart(row, f"r{row}", [1], RowSpec(params, row, row, 1)) for row in (0, 1)]
    advances = [RowAdvance(row, 0, 1, [[1]], is_sampling=True) for row in (0, 1)]
    result = make_executor().submit(StepPlan(1, starts=starts, advances=advances)).result()
    assert result.token_ids == [(), ()]
    assert sorted(result.errors) == [0, 1]
