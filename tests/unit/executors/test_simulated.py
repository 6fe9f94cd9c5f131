"""The executor without a model: virtual time, made-up tokens that depend on their history alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from octavo import LLM, SamplingParams
from octavo.bench.arrivals import Arrival
from octavo.bench.simulation import simulate
from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.errors import ConfigError
from octavo.execution.cost_table import CostTable
from octavo.interfaces.executor import StepCosts
from octavo.interfaces.proposer import EngineProposer
from octavo.testing.engines import Outcome, check_invariants, request
from octavo_plugins.executors.simulated import SimulatedExecutor, SimulatedOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.engine import Engine
    from octavo.engine.plan import StepPlan
    from octavo.interfaces.proposer import DraftView

NUMBERS = {"fixed-ms": 10, "per-token-ms": 1, "per-context-ms": 0.01, "vocab-size": 1000}


class Watched(SimulatedExecutor):
    """Keeps the plans it was given."""

    def __init__(self, options: SimulatedOptions) -> None:
        super().__init__(options)
        self.plans: list[StepPlan] = []

    def submit(self, plan: StepPlan) -> Any:
        self.plans.append(plan)
        return super().submit(plan)


def make_engine(executor: dict[str, Any] | None = None, **settings: Any) -> Engine:
    options = SimulatedOptions(**{**NUMBERS, "num-blocks": 64, **(executor or {})})
    sizes = {"block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 32, **settings}
    return build_engine(resolve(overrides=sizes), Watched(options))


def run_all(engine: Engine, requests: list[Any]) -> dict[str, Outcome]:
    outcomes = {one.request_id: Outcome() for one in requests}
    for one in requests:
        engine.add(one)
    while engine.has_work:
        for output in engine.step():
            outcomes[output.request_id].take(output)
        check_invariants(engine)
    return outcomes


def prompt(number: int, length: int) -> list[int]:
    return [(number * 31 + position * 7) % 900 for position in range(length)]


def tokens_of(engine: Engine, **fields: Any) -> dict[str, list[int]]:
    requests = [request(f"r{i}", prompt(i, 5 + 9 * i), 20, **fields) for i in range(6)]
    return {name: outcome.token_ids for name, outcome in run_all(engine, requests).items()}


# ---------------------------------------------------------------------- time


def test_a_step_takes_what_the_table_says():
    engine = make_engine()
    engine.add(request("a", prompt(1, 20), 3))
    engine.step()
    assert engine.executor.clock()() == pytest.approx(0.030)
    engine.step()  # one token after 20
    assert engine.executor.clock()() == pytest.approx(0.030 + 0.011 + 0.0002)


def test_each_further_sequence_may_cost_more():
    engine = make_engine({"per-sequence-ms": 5, "per-context-ms": 0})
    for name in "abc":
        engine.add(request(name, prompt(1, 2), 3))
    engine.step()
    assert engine.executor.clock()() == pytest.approx(0.010 + 6 * 0.001 + 2 * 0.005)


def test_steps_that_are_planned_ahead_begin_when_those_before_them_end():
    engine = make_engine(depth=1)
    engine.add(request("a", prompt(1, 20), 3))
    engine.step()
    assert engine.executor.clock()() == pytest.approx(0.030)
    assert len(engine.executor.plans) == 2
    engine.step()
    assert engine.executor.clock()() == pytest.approx(0.030 + 0.011 + 0.0002)


# ---------------------------------------------------------------------- tokens


def test_s6_s8_tokens_depend_on_neither_chunks_nor_preemption_nor_planning_ahead():
    expected = tokens_of(make_engine())
    assert all(len(set(ids)) > 10 for ids in expected.values())
    tight = make_engine({"num-blocks": 24})
    assert tokens_of(tight) == expected
    assert tight.stats().preemptions > 0
    assert tokens_of(make_engine(max_num_batched_tokens=8)) == expected
    assert tokens_of(make_engine(depth=1)) == expected
    assert tokens_of(make_engine(enable_prefix_caching=False)) == expected


def test_greedy_tokens_depend_on_no_seed_and_others_do():
    greedy = {"temperature": 0.0}
    assert tokens_of(make_engine(), seed=1, **greedy) == tokens_of(make_engine(), seed=2, **greedy)
    first, again = (tokens_of(make_engine(), seed=1, temperature=1.0) for _ in range(2))
    assert first == again != tokens_of(make_engine(), seed=2, temperature=1.0)


def test_drafts_are_verified():
    expected = run_all(make_engine(), [request("a", prompt(1, 9), 40)])["a"].token_ids
    text = prompt(1, 9) + expected

    class MostlyRight(EngineProposer):
        max_drafts = 4

        def propose(self, request: DraftView, max_tokens: int) -> Sequence[int]:
            place = len(request.token_ids)
            drafts = text[place : place + max_tokens]
            return [*drafts[:-1], 0] if place % 3 == 0 else drafts

    engine = make_engine(proposer=MostlyRight)
    assert run_all(engine, [request("a", prompt(1, 9), 40)])["a"].token_ids == expected
    assert engine.stats().draft_tokens > engine.stats().accepted_tokens > 20


def test_nothing_ends_before_its_length():
    everything = tuple(range(1, 8))
    engine = make_engine({"vocab-size": 8})
    outcome = run_all(engine, [request("a", [1, 2], 50, eos_token_ids=everything)])["a"]
    assert outcome.token_ids == [0] * 50
    assert outcome.finish_reason == "length"


def test_prefixes_are_shared():
    engine = make_engine()
    run_all(engine, [request("a", prompt(1, 20), 2)])
    run_all(engine, [request("b", prompt(1, 20), 2)])
    assert engine.stats().prefix_hits_tokens == 16


def test_what_needs_logits_fails_alone():
    engine = make_engine()
    outcomes = run_all(
        engine, [request("a", prompt(1, 4), 5, logprobs=2), request("b", prompt(2, 4), 5)]
    )
    assert outcomes["a"].finish_reason == "error"
    assert "no logits" in outcomes["a"].outputs[-1].error
    assert len(outcomes["b"].token_ids) == 5


def test_it_serves_an_llm_with_the_sizes_of_a_model():
    settings = {"executor": {"use": "simulated", "fixed-ms": 1}, "num_gpu_blocks_override": 50}
    with LLM("smollm2", **settings) as llm:
        assert llm.engine_info.vocab_size == 49152
        assert llm.engine_info.capacity_tokens == 50 * 16
        (output,) = llm.generate("Hello", SamplingParams(max_tokens=7), use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 7


# ---------------------------------------------------------------------- schedules


@pytest.mark.parametrize("scheduler", ["fcfs", "priority"])
def test_s7_the_same_trace_makes_the_same_schedule(scheduler):
    arrivals = [
        Arrival(0.01 * i, prompt(i, 4 + 7 * (i % 5)), 5 + i % 11, priority=i % 3) for i in range(40)
    ]

    def play() -> tuple[list[StepPlan], float]:
        engine = make_engine({"num-blocks": 20}, scheduler=scheduler)
        result = simulate(engine, engine.executor.clock(), arrivals)
        assert [fate.num_output_tokens for fate in result.fates] == [5 + i % 11 for i in range(40)]
        assert result.stats.preemptions > 0
        return engine.executor.plans, result.virtual_s

    assert play() == play()


# ---------------------------------------------------------------------- tables


def test_a_table_is_read_as_it_was_written(tmp_path):
    table = CostTable(
        StepCosts(((1, 5.0), (16, 20.0)), 0.25), 1.5, machine={"cpu": "x"}, model="tiny"
    )
    table.write(tmp_path / "costs.json")
    assert CostTable.read(tmp_path / "costs.json") == table
    engine = build_engine(
        resolve(overrides={"block_size": 4}),
        SimulatedExecutor(SimulatedOptions(costs=tmp_path / "costs.json")),
    )
    assert engine.core.costs == table.costs


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "it holds no table"),
        ('{"points": [[1, 2]]}', "two or more pairs"),
        ('{"points": [[5, 2], [1, 3]]}', "that rise"),
        ('{"points": [[1, 2], [1, 3]]}', "different numbers of tokens"),
        ('{"points": [[1, 2], [2, -3]]}', "no number of milliseconds"),
        ('{"points": [[1, 2], [2, NaN]]}', "no number of milliseconds"),
        ('{"points": [[1, 2], [2, 3]], "extra": 1}', "unknown keys extra"),
        ('{"per_context_ms": 1}', "KeyError: 'points'"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, fact):
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=fact) as error:
        CostTable.read(path)
    assert error.value.headline == f"'{path}' is no cost table"


def test_costs_must_come_from_somewhere_and_in_one_way(tmp_path):
    for options in (SimulatedOptions(), SimulatedOptions(costs=tmp_path / "x", fixed_ms=1)):
        with pytest.raises(ConfigError, match="what steps cost, in one way"):
            SimulatedExecutor(options).start(resolve())
    with pytest.raises(ConfigError, match="cannot read the cost table"):
        SimulatedExecutor(SimulatedOptions(costs=tmp_path / "x")).start(resolve())


def test_nobody_gets_made_up_text_unasked():
    assert resolve().chosen["executor"].name == "inline"


def test_a_table_is_json_that_people_can_read(tmp_path):
    CostTable(StepCosts.linear(1.0, 2.0)).write(tmp_path / "costs.json")
    assert json.loads((tmp_path / "costs.json").read_text())["points"] == [[0, 1.0], [1, 3.0]]
