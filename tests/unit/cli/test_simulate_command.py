"""`octavo simulate`, from flags to numbers."""

from __future__ import annotations

import json

import pytest

from octavo.bench.simulation import Fate, Simulation, summary
from octavo.cli.main import main

COSTS = ["--executor.fixed-ms", "20", "--executor.per-token-ms", "1"]


def simulate(capsys, *words: str) -> dict:
    assert main(["simulate", *COSTS, *words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    del report["real_s"], report["times_faster"]
    return report


def test_one_request_has_the_times_that_can_be_worked_out_by_hand(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival_s": 3, "prompt_tokens": 10, "output_tokens": 5}\n')
    report = simulate(capsys, "--trace", str(trace))
    assert report["ttft_ms"] == {"mean": 30, "p50": 30, "p90": 30, "p99": 30}
    assert report["tpot_ms"]["mean"] == 21
    assert report["latency_ms"]["p99"] == 30 + 4 * 21
    assert report["virtual_s"] == 3.114
    assert report["finished"] == {"length": 1}
    assert report["steps"] == 5


def test_the_same_workload_gives_the_same_numbers_faster_than_time(capsys):
    words = ["--rate", "5", "--num-prompts", "60", "--executor.num-blocks", "200"]
    words += ["--shared-prefix-len", "64"]
    assert main(["simulate", *COSTS, *words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["times_faster"] > 3
    assert report["preemptions"] > 0
    assert report["prefix_hit_rate"] > 0.2
    assert 0.5 < report["kv_usage"]["mean"] <= report["kv_usage"]["max"] <= 1
    again = simulate(capsys, *words)
    assert again == {name: report[name] for name in again}


def test_policies_differ_where_priorities_do(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"arrival_s": 0, "prompt_tokens": 8, "output_tokens": 40, "priority": 9 - i}
        for i in range(10)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    words = ["--trace", str(trace), "--max-num-seqs", "2"]
    first = simulate(capsys, *words, "--scheduler", "fcfs")
    second = simulate(capsys, *words, "--scheduler", "priority")
    assert first["finished"] == second["finished"] == {"length": 10}


def test_requests_that_can_never_run_are_counted(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"arrival_s": 0, "prompt_tokens": 10, "output_tokens": 5}\n\n'
        '{"arrival_s": 0, "prompt_token_ids": [1, 2, 3], "output_tokens": 5000}\n'
    )
    report = simulate(capsys, "--trace", str(trace), "--num-gpu-blocks-override", "10")
    assert (report["requests"], report["refused"]) == (2, 1)


def test_a_table_is_printed_for_people(capsys):
    assert main(["simulate", *COSTS, "--num-prompts", "3", "--output-len", "4"]) == 0
    out = capsys.readouterr().out
    assert "ttft ms" in out
    assert "requests: 3; ended: 3 by length; refused: 0" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs to know what steps cost"),
        ([*COSTS, "--rate", "0"], "--rate 0.0 is no number of arrivals"),
        ([*COSTS, "--rate", "nan"], "--rate nan is no number of arrivals"),
        ([*COSTS, "--num-prompts", "0"], "--num-prompts must be at least 1"),
        ([*COSTS, "--shared-prefix-len", "-1"], "--shared-prefix-len must be at least 0"),
        ([*COSTS, "--trace", "/nowhere.jsonl"], "cannot read the trace '/nowhere.jsonl'"),
        (["--executor", "inline"], "the executor 'inline' has no time of its own"),
        (["--executor.costs", "/nowhere.json"], "cannot read the cost table '/nowhere.json'"),
        (["--executor.speed", "3"], "unknown option 'speed' of executor 'simulated'"),
    ],
)
def test_what_cannot_be_simulated_is_refused(words, message, capsys):
    assert main(["simulate", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("{", "JSONDecodeError"),
        ('{"arrival_s": 0}', "KeyError: 'prompt_tokens'"),
        ('{"arrival_s": 0, "prompt_tokens": 3, "output_tokens": 0}', "at least one token"),
        ('{"arrival_s": -1, "prompt_tokens": 3, "output_tokens": 1}', "arrives at 0 s or later"),
        ('{"arrival_s": 0, "prompt_tokens": 3, "output_tokens": 1, "x": 1}', "unknown keys x"),
    ],
)
def test_a_bad_line_of_a_trace_is_named(tmp_path, capsys, line, fact):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival_s": 0, "prompt_tokens": 3, "output_tokens": 1}\n' + line)
    assert main(["simulate", *COSTS, "--trace", str(trace)]) == 2
    err = capsys.readouterr().err
    assert f"line 2 of the trace '{trace}' is no request" in err
    assert fact in err


def test_times_of_requests_without_a_token_count_nowhere():
    result = Simulation(fates=[Fate(1.0, 5), Fate(1.0, 5, 1.5, 2.5, 3, "length")])
    assert result.ttft_ms() == [500]
    assert result.tpot_ms() == [500]
    assert result.latency_ms() == [1500]
    assert summary([]) == {}
    assert summary(range(1, 102)) == {"mean": 51, "p50": 51, "p90": 91, "p99": 100}
