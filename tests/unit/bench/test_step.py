"""What `octavo bench step` measures of a tiny model. Times are only compared with each other."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from byte_models import LLAMA, save_byte_model
from octavo.bench.step import StepMeter
from octavo.cli.main import main
from octavo.config.resolve import resolve
from octavo.errors import ConfigError

SETTINGS = {"threads": 1, "max_num_seqs": 4, "max_step_ms": None, "num_gpu_blocks_override": 64}
NUM_SEQS, CONTEXT, STEPS = 3, 20, 30


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("model"))


def measured(model, **settings):
    with StepMeter(resolve(overrides={"model": model, **SETTINGS, **settings})) as meter:
        calls = meter.runner.calls
        return meter.measure(NUM_SEQS, CONTEXT, STEPS), Counter(call.operation for call in calls)


@pytest.mark.parametrize(("ops", "attention"), [("cpu", "cpu"), ("torch", "torch")])
def test_parts_add_up_and_no_call_is_missing(model, ops, attention):
    times, recorded = measured(model, ops=ops, attention=attention)

    parts_ms = times.engine_ms + times.build_ms + times.layers_ms + times.sample_ms
    assert parts_ms == pytest.approx(times.step_ms, rel=0.25)
    assert 0 < times.fastest_layers_ms <= times.layers_ms < times.step_ms
    assert times.beside_layers_ms == pytest.approx(times.step_ms - times.layers_ms)
    assert times.rate == pytest.approx(3000 / times.step_ms)
    assert times.context_tokens > CONTEXT + STEPS
    found: Counter[str] = Counter()
    for row in times.kernels:
        (operation,) = {"linear", "forward", "write", "prepare"} & set(row.name.split()) or {
            row.name.split()[0]
        }
        found[operation] += row.num_calls
        assert row.step_ms > 0
    assert found == recorded
    assert sum(row.step_ms for row in times.kernels) < 20 * times.layers_ms


def test_shares_are_of_what_is_read_and_multiplied(model):
    times, _ = measured(model, ops="cpu", attention="cpu")

    rows = {row.name: row for row in times.kernels}
    counted = {name for name, row in rows.items() if row.share is not None}
    assert counted == {name for name in rows if name.startswith(("linear", "attention f", "emb"))}
    shares = {name: rows[name].share for name in counted}
    assert all(0 < share < 1.3 for share in shares.values()), shares
    linears = [row for name, row in rows.items() if name.startswith("linear")]
    assert len(linears) == 5  # queries to values, output, gate and up, down, head
    assert all(row.name.endswith(" F32") and row.product_share for row in linears)


def test_what_torch_computes_has_times_and_no_shares(model):
    times, _ = measured(model, ops="torch", attention="torch")
    assert {row.share for row in times.kernels} == {None}


def test_more_tokens_than_the_model_takes_are_refused(model):
    config = resolve(overrides={"model": model, **SETTINGS, "max_model_len": 40})
    with StepMeter(config) as meter, pytest.raises(ConfigError) as error:
        meter.measure(1, 20, 30)
    assert str(error.value) == (
        "a context of 20 tokens and 34 steps are more than the model takes\n  max-model-len: 40"
    )


def test_command_prints_json_and_tables(model, capsys):
    words = ["bench", "step", model, "--batch-size", "1,2", "--context", "9", "--output-len", "5"]
    words += ["--threads", "1", "--max-num-batched-tokens", "64"]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["sequences"] for row in report["rows"]] == [1, 2]
    assert report["machine"]["read_gb_per_s"] > 0
    assert [table["rows"][0]["calls"] for table in report["kernels"]] == [1, 1]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "parts of a decode step, in ms: medians of 5" in out
    assert "kernels, 2 sequences after" in out


def test_steps_of_a_split_model_are_refused(model, capsys):
    words = ["bench", "step", model, "--tensor-parallel-size", "2"]
    assert main(words) == 2
    assert "parts of a step are timed in one process" in capsys.readouterr().err
