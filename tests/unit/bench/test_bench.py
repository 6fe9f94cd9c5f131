"""What the benchmarks count. Times are printed, never asserted."""

from __future__ import annotations

import json

import pytest

from byte_models import LLAMA, save_byte_model
from octavo.bench.costs import CostMeter
from octavo.bench.offline import PromptMaker
from octavo.bench.overhead import kv_waste, time_overhead
from octavo.bench.speculation import Comparison, PromptTimes
from octavo.cli.main import main
from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.engine.plan import RowAdvance, StepPlan
from octavo.execution.cost_table import CostTable
from octavo.interfaces.executor import StepCosts


def test_paged_kv_wastes_less_than_a_fortieth_on_sharegpt_like_lengths() -> None:
    """Deterministic: lengths are drawn with a fixed seed and the model computes nothing."""
    paged = kv_waste(resolve(), 60)
    contiguous = kv_waste(resolve(overrides={"allocator": "contiguous"}), 60)
    assert 0 < paged < 0.025
    assert contiguous > 0.5


def test_sharegpt_like_lengths_have_the_means() -> None:
    lengths = PromptMaker(100).sharegpt_lengths(4000)
    assert sum(p for p, _ in lengths) / 4000 == pytest.approx(161, rel=0.05)
    assert sum(o for _, o in lengths) / 4000 == pytest.approx(338, rel=0.05)


def test_overhead_is_of_decode_steps_with_all_running() -> None:
    row = time_overhead(resolve(), 3)
    assert row.num_seqs == 3
    assert row.goal_us == 210
    assert row.step_us > 0


def test_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "overhead", "--batch-size", "1,2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["sequences"] for row in report["rows"]] == [1, 2]
    assert report["machine"]["cpu"]
    assert main(["bench", "kv-waste", "--num-prompts", "5"]) == 0
    out = capsys.readouterr().out
    assert "contiguous" in out
    assert "wasted" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["latency", "smollm2", "--batch-size", "1,x"], "--batch-size '1,x' is no list of numbers"),
        (["throughput", "smollm2", "--num-prompts", "0"], "--num-prompts must be at least 1"),
    ],
)
def test_bad_sizes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_costs_are_measured_through_the_engine_and_written_as_a_table(tmp_path, capsys) -> None:
    model = save_byte_model(LLAMA, tmp_path)
    table = tmp_path / "costs.json"
    words = ["--max-num-batched-tokens", "64", "--max-num-seqs", "4", "--threads", "1"]
    assert main(["bench", "costs", model, *words, "--output", str(table), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    steps = [row["step"] for row in report["rows"]]
    assert steps[:2] == ["1 tokens of one", "8 tokens of one"]
    assert steps[-5:] == [
        "44 tokens of one",
        "2 sequences: more",
        "3 sequences: more",
        "one token after 1000: more",
        "100 tokens after 1000: more",
    ]
    costs = CostTable.read(table)
    times = [ms for _, ms in costs.costs.points]
    assert times == sorted(times)
    assert times[0] > 0
    assert costs.model == model
    assert costs.machine["cpu"]
    assert [num for num, _ in costs.sequence_points] == [1, 2, 3]


def test_what_sequences_add_lies_between_what_was_measured() -> None:
    table = CostTable(StepCosts.linear(10.0, 1.0), sequence_points=((1, 0.0), (3, 4.0), (5, 3.0)))
    expected = {1: 11.0, 2: 14.0, 3: 17.0, 4: 17.5, 5: 18.0}
    for num_seqs, step_ms in expected.items():
        advances = [RowAdvance(row, 0, 1, (), True) for row in range(num_seqs)]
        assert table.predict_ms(StepPlan(0, advances=advances)) == pytest.approx(step_ms)


def test_a_position_before_one_token_may_cost_more_than_before_each_of_many(tmp_path) -> None:
    costs = StepCosts(((0, 10.0), (1, 11.0)), 0.01)
    table = CostTable(costs, decode_context_ms=0.05)
    alone, chunk = RowAdvance(0, 100, 1, (), True), RowAdvance(1, 100, 4, (), False)
    assert table.predict_ms(StepPlan(0, advances=[alone])) == pytest.approx(11 + 5)
    assert table.predict_ms(StepPlan(0, advances=[chunk])) == pytest.approx(14 + 4)
    assert table.predict_ms(StepPlan(0, advances=[alone, chunk])) == pytest.approx(15 + 9)
    table.write(tmp_path / "costs.json")
    assert CostTable.read(tmp_path / "costs.json") == table


def test_a_prompt_that_takes_more_than_one_step_is_no_measure(tmp_path) -> None:
    model = save_byte_model(LLAMA, tmp_path)
    settings = {"model": model, "max_step_ms": 1e-6, "threads": 1, "block_size": 8}
    engine = build_engine(resolve(overrides=settings))
    try:
        meter = CostMeter(engine)
        meter.sample(1)
        sizes = [size for size, _ in meter.table().costs.points]
    finally:
        engine.close()
    assert sizes[:2] == [1, 8]
    assert sizes[-1] < 20


def test_speculation_compares_the_same_texts(
    tmp_path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.bench.speculation.REPETITIVE", "abc " * 8)
    folder = save_byte_model(LLAMA, tmp_path)
    sizes = ["--output-len", "9", "--num-iters", "2", "--num-prompts", "3", "--threads", "1"]
    config = {"method": "ngram", "prompt_lookup_max": 1}
    for words in ([], ["--speculative-config", json.dumps(config)]):
        assert main(["bench", "speculation", folder, *sizes, *words, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)

        assert report["title"] == "one request at a time, 9 tokens, proposer ngram"
        assert [row["prompts"] for row in report["rows"]] == ["1 repetitive", "3 plain"]
        assert all(row["same text"] == "yes" for row in report["rows"])
        assert all(row["tok/step"] >= 1 for row in report["rows"])


def test_speed_ups_are_of_medians_prompt_by_prompt() -> None:
    times = [PromptTimes(10, 2.0, 1.0, 5, 4, 3, True), PromptTimes(10, 1.0, 1.25, 10, 1, 0, True)]
    comparison = Comparison(tuple(times))
    assert comparison.speedups == [0.8, 2.0]
    assert comparison.plain_rate == pytest.approx(20 / 3)
    assert comparison.drafted_rate == pytest.approx(20 / 2.25)
    assert comparison.tokens_per_step == pytest.approx(20 / 15)
    assert comparison.acceptance == pytest.approx(3 / 5)
