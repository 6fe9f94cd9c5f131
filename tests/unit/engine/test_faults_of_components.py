"""What a component does wrong is its own, or one request's: the engine and the others live."""

from __future__ import annotations

import signal
import sys

import pytest

from octavo.engine.eviction_guard import GuardedEviction
from octavo.errors import RequestFailedError
from octavo.faults import Fault, fault_in, name_component, place_of, raise_if_signalled, whose
from octavo.interfaces.eviction import Eviction
from octavo.interfaces.proposer import EngineProposer
from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.testing.engines import EngineSetup, make_engine, request, run_all
from octavo.testing.stub_executor import expected_output

PROMPT = [5, 6, 7]
RAISED = [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
#: what a method of a policy may answer that is no answer
NO_ANSWERS = {
    "admit": [None, "yes", 2, []],
    "chunk": ["x", 1.5, None],
    "victim": ["x", 0.5, None],
}


def wrong_policy(method, wrong, *, of="bad", is_static=True):
    """Return a policy of which one method raises `wrong`, or returns it, for request `of`."""

    def call(_self, subject, *args):
        if method == "victim" or subject.request_id == of:
            if isinstance(wrong, BaseException):
                raise wrong
            return wrong
        return getattr(SchedulerPolicy(), method)(subject, *args)

    members = {method: call, "is_order_static": is_static}
    return type("Wrong", (SchedulerPolicy,), members)()


@pytest.mark.parametrize("error", RAISED, ids=repr)
@pytest.mark.parametrize("method", ["admit", "victim", "chunk", "on_tokens"])
def test_the_default_decides_for_a_method_that_raises(method, error, caplog):
    setup = EngineSetup(policy=wrong_policy(method, error), num_blocks=14, max_num_seqs=6)
    names = ["bad", *(f"r{i}" for i in range(5))]

    outcomes = run_all(
        make_engine(setup), [request(name, [i, *range(6)], 20) for i, name in enumerate(names)]
    )

    for i, name in enumerate(names):
        assert outcomes[name].token_ids == expected_output([i, *range(6)], 20)
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"failed in {method} (told once): {type(error).__name__}" in told
    assert f"at {__file__}:" in told


@pytest.mark.parametrize(
    ("method", "answer"), [(one, answer) for one, some in NO_ANSWERS.items() for answer in some]
)
def test_what_is_no_answer_is_a_fault_too(method, answer, caplog):
    setup = EngineSetup(policy=wrong_policy(method, answer), num_blocks=14, max_num_seqs=6)
    names = ["bad", *(f"r{i}" for i in range(5))]

    outcomes = run_all(
        make_engine(setup), [request(name, [i, *range(6)], 20) for i, name in enumerate(names)]
    )

    assert all(len(outcome.token_ids) == 20 for outcome in outcomes.values())
    assert len(caplog.records) == 1


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("wrong", ["zzz", float("nan"), None, [], *RAISED], ids=repr)
def test_a_request_without_a_place_is_refused_alone(wrong, is_running, is_static):
    policy = wrong_policy("order", wrong, is_static=is_static)
    engine = make_engine(EngineSetup(policy=policy))
    engine.add(request("good", PROMPT, 4))
    if is_running:
        engine.step()  # nobody waits then with whom the key could be compared

    with pytest.raises(RequestFailedError, match="cannot order this request"):
        engine.add(request("bad", PROMPT, 4))

    engine.add(request("late", PROMPT, 4))
    outputs = [output for _ in range(8) for output in engine.step()]
    assert {one.request_id for one in outputs if one.finish_reason} == {"good", "late"}
    assert not engine.has_work
    engine.close()


@pytest.mark.parametrize("wrong", [("a",), *RAISED], ids=repr)
def test_whoever_had_a_place_keeps_it_when_the_order_fails_late(wrong):
    class Late(SchedulerPolicy):
        is_order_static = False

        def order(self, request, view):
            if request.num_output_tokens > 2 and request.request_id == "bad":
                if isinstance(wrong, BaseException):
                    raise wrong
                return wrong
            return (0, view.now_s)

    outcomes = run_all(
        make_engine(EngineSetup(policy=Late(), num_blocks=14)),
        [request(name, [i, *range(6)], 20) for i, name in enumerate(("a", "bad", "c", "d"))],
    )

    assert all(len(outcome.token_ids) == 20 for outcome in outcomes.values())


def test_keys_that_differ_behind_their_first_part_end_nobody_who_is_in():
    class Mixed(SchedulerPolicy):
        def order(self, request, _view):
            return (0, request.request_id) if request.request_id > "m" else (len("x"), 1)

    engine = make_engine(EngineSetup(policy=Mixed(), max_num_seqs=2))
    for name in ("a", "z", "b"):
        engine.add(request(name, PROMPT, 3))

    assert {o.request_id for _ in range(9) for o in engine.step()} == {"a", "z", "b"}
    engine.close()


class WrongEviction(Eviction):
    """Goes wrong in one method, from the third block on."""

    def __init__(self, method, wrong):
        super().__init__()
        self._blocks, self._method, self._wrong, self._num_calls = [], method, wrong, 0

    def _go_wrong(self, method):
        if method == self._method:
            self._num_calls += 1
            if self._num_calls > 2 and self._wrong is not None:
                raise self._wrong
        return method == self._method and self._num_calls > 2

    def add(self, block_id):
        self._go_wrong("add")
        self._blocks.append(block_id)

    def remove(self, block_id):
        self._go_wrong("remove")
        self._blocks.remove(block_id)

    def pop(self):
        return "none" if self._go_wrong("pop") else self._blocks.pop()

    def __len__(self):
        return len(self._blocks)

    def on_cached(self, *_):
        self._go_wrong("on_cached")

    def on_hit(self, *_):
        self._go_wrong("on_hit")


@pytest.mark.parametrize("error", [None, *RAISED], ids=repr)
@pytest.mark.parametrize("method", ["add", "remove", "pop", "on_cached", "on_hit"])
def test_an_eviction_order_that_fails_is_left_and_blocks_go_on(method, error, caplog):
    evictions = []

    def make():
        evictions.append(GuardedEviction(WrongEviction(method, error)))
        return evictions[0]

    engine = make_engine(EngineSetup(num_blocks=14, eviction=make))
    prompts = [[i % 3, *range(9)] for i in range(9)] + [[i, *range(9)] for i in range(20)]

    outcomes = run_all(engine, [request(f"r{i}", one, 6) for i, one in enumerate(prompts)])

    for i, prompt in enumerate(prompts):
        assert outcomes[f"r{i}"].token_ids == expected_output(prompt, 6)
    has_failed = error is not None or method == "pop"
    assert evictions[0].has_failed == has_failed
    assert len(caplog.records) == has_failed


@pytest.mark.parametrize("error", RAISED, ids=repr)
@pytest.mark.parametrize("method", ["propose", "forget"])
def test_a_proposer_that_fails_costs_drafts_only(method, error, caplog):
    class Wrong(EngineProposer):
        max_drafts = 2

        def propose(self, _request, _max_tokens):
            if method == "propose":
                raise error
            return [1]

        def forget(self, _request_id):
            if method == "forget":
                raise error

    outcomes = run_all(
        make_engine(EngineSetup(proposer=Wrong())), [request(f"r{i}", PROMPT, 6) for i in range(3)]
    )

    assert all(one.token_ids == expected_output(PROMPT, 6) for one in outcomes.values())
    assert [f"failed in {method}" in one.getMessage() for one in caplog.records] == [True]


# ---------------------------------------------------------------------- what is a fault at all


def raised_by(call):
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - looked at
        return error
    raise AssertionError("nothing was raised")


def test_ctrl_c_is_nobody_s_fault():
    def wait():
        signal.raise_signal(signal.SIGINT)
        for _ in range(10**9):
            pass

    error = raised_by(wait)

    with pytest.raises(KeyboardInterrupt):
        raise_if_signalled(error)


def test_a_handler_of_the_program_s_own_is_nobody_s_fault():
    def leave(*_):
        sys.exit(7)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        error = raised_by(lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(SystemExit):
            raise_if_signalled(error)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_code_raises_is_a_fault():
    def leave():
        raise KeyboardInterrupt

    raise_if_signalled(raised_by(leave))
    raise_if_signalled(raised_by(lambda: sys.exit(2)))


def test_a_fault_is_told_with_name_and_place():
    policy = wrong_policy("order", ValueError("no"))
    assert whose(policy).startswith("component ")
    name_component(policy, "scheduler 'wrong' (octavo-wrong 1.0)")
    error = raised_by(lambda: policy.order(request("bad", PROMPT), None))

    refusal = Fault.of(policy, "order", error).refusal()

    line = wrong_policy.__code__.co_firstlineno + 6
    assert str(refusal) == (
        "the scheduler 'wrong' (octavo-wrong 1.0) failed in order\n"
        f"  ValueError: no\n  at {__file__}:{line}\n"
        "  other requests are not affected; the component has to be mended"
    )


def test_an_error_outside_of_a_component_points_at_its_class():
    error = raised_by(lambda: int("x"))
    error.__traceback__ = None

    assert place_of(error, WrongEviction("add", None)).startswith(f"{__file__}:")


def test_an_error_that_nobody_caught_is_laid_to_the_component_at_work():
    class Wrong:
        def commit(self):
            return {}["lost"]

    wrong = Wrong()
    with pytest.raises(KeyError) as caught:
        wrong.commit()
    assert fault_in(caught.value) is None, "nobody has named it"

    name_component(wrong, "allocator 'wrong' (some 1.0)")
    fault = fault_in(caught.value)
    assert (fault.whose, fault.method) == ("allocator 'wrong' (some 1.0)", "commit")
    assert fault.facts[0] == "KeyError: 'lost'"
    assert fault.facts[1].startswith(f"at {__file__}:")
