"""How requests end: stop ids, lengths, errors, aborts, refusals."""

from __future__ import annotations

import pytest

from octavo.engine.engine import STALL_S
from octavo.errors import EngineDeadError, QueueFullError, RequestError, RequestFailedError
from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.testing.engines import EngineSetup, make_engine, request, run_all
from octavo.testing.stub_executor import expected_output

PROMPT = [5, 6, 7]


def test_eos_ends_without_stop_reason_and_stop_id_with_one() -> None:
    wanted = expected_output(PROMPT, 12)
    eos = run_all(make_engine(), [request("r", PROMPT, 12, eos_token_ids=(wanted[3],))])["r"]
    stop = run_all(make_engine(), [request("r", PROMPT, 12, stop_token_ids=[wanted[3]])])["r"]
    assert eos.token_ids == stop.token_ids == wanted[:4]
    assert (eos.finish_reason, eos.outputs[-1].stop_reason) == ("stop", None)
    assert (stop.finish_reason, stop.outputs[-1].stop_reason) == ("stop", wanted[3])


@pytest.mark.parametrize("depth", [0, 1])
def test_length_is_exact(depth: int) -> None:
    engine = make_engine(EngineSetup(depth=depth, is_late=bool(depth)))
    outcome = run_all(engine, [request("r", PROMPT, 7)])["r"]
    assert len(outcome.token_ids) == 7
    assert outcome.finish_reason == "length"
    sampled = sum(a.is_sampling for plan in engine.executor.plans for a in plan.advances)
    assert sampled == 7  # not one more is sampled ahead of a known end


def test_one_token_of_nothing_to_generate() -> None:
    engine = make_engine(EngineSetup(max_num_batched_tokens=4))
    outcome = run_all(engine, [request("r", list(range(10)), 0, prompt_logprobs=1)])["r"]
    assert outcome.finish_reason == "length"
    assert outcome.token_ids == []
    scores = outcome.outputs[-1].prompt_logprobs
    assert scores is not None
    assert scores[0] is None
    assert [s.token_id for s in scores[1:] if s] == list(range(1, 10))


@pytest.mark.parametrize("num_tokens", [15, 16, 17, 32, 33])
def test_B91_B43_prompt_logprobs_with_prefix_caching(num_tokens: int) -> None:
    engine = make_engine(EngineSetup(block_size=16, num_blocks=20))
    prompt = list(range(num_tokens))
    plain = run_all(engine, [request("a", prompt, 1)])["a"]
    for name in ("b", "c"):
        outcome = run_all(engine, [request(name, prompt, 1, prompt_logprobs=1)])[name]
        scores = outcome.outputs[0].prompt_logprobs
        assert scores is not None
        assert len(scores) == num_tokens
        assert [s.token_id for s in scores[1:] if s] == prompt[1:]
        assert outcome.token_ids == plain.token_ids


def test_B96_scores_come_once_and_whole_with_chunks() -> None:
    engine = make_engine(EngineSetup(num_blocks=60, max_num_batched_tokens=7))
    others = [request(f"d{i}", [i], 30) for i in range(3)]
    outcomes = run_all(engine, [*others, request("r", list(range(50)), 4, prompt_logprobs=1)])
    first, *rest = outcomes["r"].outputs
    assert len(first.prompt_logprobs or []) == 50
    assert first.token_ids
    assert all(output.prompt_logprobs is None for output in rest)


def test_scores_survive_preemption_once() -> None:
    engine = make_engine(EngineSetup(num_blocks=14, max_num_seqs=6))
    requests = [request(f"r{i}", [i, *range(6)], 20, prompt_logprobs=0) for i in range(6)]
    outcomes = run_all(engine, requests)
    assert engine.stats().preemptions > 0
    for outcome in outcomes.values():
        assert [len(o.prompt_logprobs or []) for o in outcome.outputs] == [7] + [0] * 19


def test_B103_a_request_that_never_fits_is_refused_at_once() -> None:
    engine = make_engine(EngineSetup(num_blocks=6, block_size=4))
    with pytest.raises(RequestError, match="needs room for 26 tokens") as caught:
        engine.add(request("big", list(range(18)), 8))
    assert "the KV cache holds 20" in str(caught.value)
    assert run_all(engine, [request("small", [1], 3)])["small"].finish_reason == "length"


def test_bounded_queue() -> None:
    engine = make_engine(EngineSetup(max_num_queued_reqs=2))
    engine.add(request("a", [1]))
    engine.add(request("b", [2]))
    with pytest.raises(QueueFullError, match="2 requests are waiting"):
        engine.add(request("c", [3]))
    engine.step()
    engine.add(request("c", [3]))


def test_same_id_twice_is_refused() -> None:
    engine = make_engine()
    engine.add(request("a", [1]))
    with pytest.raises(RequestError, match="request id 'a' is in use"):
        engine.add(request("a", [1]))


def test_an_error_of_one_request_leaves_the_others_alone() -> None:
    engine = make_engine()
    engine.executor.bad_request_ids.add("bad")
    outcomes = run_all(engine, [request("good", PROMPT, 6), request("bad", [9], 6)])
    assert outcomes["bad"].finish_reason == "error"
    assert outcomes["bad"].outputs[-1].error == "NaN"
    assert outcomes["good"].token_ids == expected_output(PROMPT, 6)


def test_a_failing_executor_kills_the_engine_with_a_clear_error() -> None:
    engine = make_engine()
    engine.executor.fails_at_step = 2
    engine.add(request("r", PROMPT, 9))
    engine.step()
    engine.step()
    with pytest.raises(EngineDeadError, match="RuntimeError: the device is gone"):
        engine.step()


@pytest.mark.parametrize("depth", [0, 1])
def test_S5_abort_in_any_state_frees_everything(depth: int) -> None:
    engine = make_engine(EngineSetup(max_num_seqs=2, depth=depth, is_late=bool(depth)))
    for i in range(4):
        engine.add(request(f"r{i}", [i] * 10, 20))
    engine.step()
    outputs = engine.abort(["r0", "r3", "unknown"])
    assert [(o.request_id, o.finish_reason) for o in outputs] == [("r0", "abort"), ("r3", "abort")]
    engine.step()
    engine.abort(["r1", "r2"])
    while engine.has_work:
        assert engine.step() == []
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_usage) == (0, 0, 0.0)
    assert stats.finished == {"abort": 4}


def test_held_requests_are_skipped_not_waited_for() -> None:
    engine = make_engine(EngineSetup(max_num_seqs=1))
    engine.add(request("held", [1], 2))
    engine.hold("held", "grammar")
    engine.add(request("free", [2], 2))
    first = [output.request_id for _ in range(2) for output in engine.step()]
    assert first == ["free", "free"]
    assert not engine.has_work
    engine.release("held", "grammar")
    assert engine.has_work
    assert [o.request_id for o in engine.step()] == ["held"]


class OneAtATime(SchedulerPolicy):
    """Admits nobody until its time has come."""

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        return view.now_s >= 4


def test_a_policy_that_admits_nobody_is_asked_again_without_spinning() -> None:
    engine = make_engine(EngineSetup(policy=OneAtATime()))
    naps: list[float] = []
    engine._sleep = naps.append
    engine.add(request("r", PROMPT, 1))
    assert [engine.step() for _ in range(3)] == [[], [], []]
    assert naps == [STALL_S] * 3
    assert [output.request_id for output in engine.step()] == ["r"]
    assert engine.step() == []
    assert len(naps) == 3


class Broken(SchedulerPolicy):
    """Raises in the methods that it is told to; orders the request `odd` by a text."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.methods = methods

    def order(self, request: RequestView, view: SchedulerView) -> object:
        self._fail("order" if request.request_id == "bad" else "")
        return "text" if request.request_id == "odd" else request.sequence_number

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        return self._fail("admit")

    def victim(self, running: object, view: SchedulerView) -> int:
        return self._fail("victim")

    def chunk(self, request: RequestView, num_tokens: int, view: SchedulerView) -> int:
        self._fail("chunk")
        return num_tokens

    def on_tokens(self, request: RequestView, num_tokens: int, view: SchedulerView) -> None:
        self._fail("on_tokens")

    def _fail(self, method: str) -> bool:
        if method in self.methods:
            raise ZeroDivisionError(method)
        return True


def test_a_policy_that_raises_cannot_hurt_requests(caplog: pytest.LogCaptureFixture) -> None:
    methods = ("admit", "victim", "chunk", "on_tokens")
    engine = make_engine(EngineSetup(policy=Broken(*methods), num_blocks=14, max_num_seqs=6))
    outcomes = run_all(engine, [request(f"r{i}", [i, *range(6)], 20) for i in range(6)])
    for i in range(6):
        assert outcomes[f"r{i}"].token_ids == expected_output([i, *range(6)], 20)
    assert engine.stats().preemptions > 0
    assert sorted(record.args[1] for record in caplog.records) == sorted(methods)  # once each


@pytest.mark.parametrize("bad_id", ["bad", "odd"])
def test_a_request_that_the_policy_cannot_order_is_refused_alone(bad_id: str) -> None:
    engine = make_engine(EngineSetup(policy=Broken("order")))
    engine.add(request("good", PROMPT, 4))
    with pytest.raises(RequestFailedError, match="the component Broken cannot order this request"):
        engine.add(request(bad_id, PROMPT, 4))
    assert [o.request_id for _ in range(4) for o in engine.step()] == ["good"] * 4
    assert not engine.has_work
    engine.close()
