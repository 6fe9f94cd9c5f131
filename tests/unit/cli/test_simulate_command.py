"""`octavo simulate`, from flags to numbers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from byte_models import LLAMA, save_byte_model
from octavo.bench.arrivals import Workload, make_arrivals
from octavo.bench.fidelity import errors
from octavo.bench.simulation import Fate, Simulation
from octavo.bench.summaries import summary
from octavo.cli.main import main
from octavo.cli.plots import bars, histograms, over_time

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
    assert report["ttft_ms"] == {"mean": 30, "p50": 30, "p90": 30, "p95": 30, "p99": 30}
    assert report["itl_ms"] == {"mean": 21, "p50": 21, "p90": 21, "p95": 21, "p99": 21}
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


# ---------------------------------------------------------------------- comparisons


CROWD = ["--num-prompts", "60", "--rate", "20", "--max-num-seqs", "4", "--num-users", "3"]
SAME_LENGTHS = ["--input-len", "40", "--output-len", "40"]


def test_schedulers_are_compared_on_one_workload(capsys):
    names = ["fcfs", "fair", "shortest-job"]
    reports = simulate_all(capsys, *CROWD, "--compare", ",".join(names))
    assert list(reports) == names
    assert len({one["requests"] for one in reports.values()}) == 1
    ttft = {name: one["ttft_ms"]["mean"] for name, one in reports.items()}
    assert ttft["shortest-job"] < 0.8 * ttft["fcfs"]
    same = simulate_all(capsys, *CROWD, *SAME_LENGTHS, "--compare", "fcfs,fair")
    by_user = {name: one["ttft_ms_by_user"] for name, one in same.items()}
    assert by_user["fair"]["user-3"]["mean"] < 0.8 * by_user["fcfs"]["user-3"]["mean"]
    alone = simulate(capsys, *CROWD, "--scheduler", "fair")
    assert alone == {name: reports["fair"][name] for name in alone}


def test_other_kinds_are_compared_as_well_and_the_chosen_one_keeps_its_options(capsys):
    words = ["--num-prompts", "80", "--rate", "3", "--shared-prefix-len", "64", "--num-prefixes"]
    words += ["12", "--executor.num-blocks", "150", "--compare", "eviction:lru,lfu,arc"]
    words += ["--scheduler", "priority", "--scheduler.ageing-s", "5"]
    reports = simulate_all(capsys, *words)
    assert list(reports) == ["lru", "lfu", "arc"]
    assert len({one["prefix_hit_rate"] for one in reports.values()}) > 1


def simulate_all(capsys, *words: str) -> dict:
    assert main(["simulate", *COSTS, *words, "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    for one in reports.values():
        del one["real_s"], one["times_faster"]
    return reports


def test_a_comparison_is_a_table_and_a_drawing_for_people(capsys):
    assert main(["simulate", *COSTS, *CROWD, "--compare", "fcfs,fair", "--plot"]) == 0
    out = capsys.readouterr().out
    for shown in ("60 requests, the same for all", "ttft", "p95", "queue over", "blocks used over"):
        assert shown in out
    drawn = [line for line in out.splitlines() if "▕" in line]
    assert len(drawn) == 8
    assert all(len(line.split("▕")[1]) == 61 for line in drawn)
    assert all("█" in line for line in drawn if line.lstrip().startswith("fcfs"))


def test_an_image_is_drawn_where_matplotlib_is(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    image = tmp_path / "runs.png"
    words = [*COSTS, *CROWD, "--compare", "fcfs,shortest-job", "--plot", str(image)]
    assert main(["simulate", *words]) == 0
    assert image.read_bytes().startswith(b"\x89PNG")


def test_an_image_without_matplotlib_is_refused_with_what_to_do(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["simulate", *COSTS, "--num-prompts", "2", "--plot", "runs.png"]) == 2
    err = capsys.readouterr().err
    assert "needs matplotlib" in err
    assert "octavo[plot]" in err


def test_lines_over_time_have_means_and_end_with_the_run():
    line = over_time([0.0, 1.0, 31.0], [2.0, 4.0, 9.0], 60.0)
    assert line[:2] == [2.0, 4.0]
    assert line[2:31] == [4.0] * 29
    assert line[31] == 9.0
    assert line[32:] == [None] * 28
    assert bars([0.0, None, 0.1, 4.0, 8.0], 8.0) == "  ▁▄█"


def test_distributions_share_a_logarithmic_axis():
    counts, (low, high) = histograms({"a": [1.0, 100.0], "b": [10.0, 10.0]})
    assert (low, high) == (1.0, 100.0)
    assert counts["a"][0] == counts["a"][-1] == 1
    assert counts["b"][30] == 2
    assert histograms({"a": []})[0]["a"] == [0.0] * 60


def test_a_real_run_is_played_beside_the_simulated_one(tmp_path, capsys):
    model = save_byte_model(LLAMA, tmp_path)
    words = [model, "--against-real", "--rate", "20", "--num-prompts", "6", "--input-len", "12"]
    words += ["--output-len", "5", "--max-num-seqs", "4", "--threads", "1"]
    assert main(["simulate", *words, "--max-num-batched-tokens", "32"]) == 0
    out = capsys.readouterr().out
    assert "real" in out
    assert "error of ttft ms: mean" in out
    assert "error of itl ms: mean" in out


def test_errors_are_shares_of_what_is_real():
    real = Simulation(fates=[Fate(0.0, 5, 1.0, 3.0, 3, "length", gaps_s=[1.0, 1.0])])
    guess = Simulation(fates=[Fate(0.0, 5, 1.1, 2.9, 3, "length", gaps_s=[0.9, 0.9])])
    found = errors(real, guess)
    assert found["ttft_ms"] == {"mean": pytest.approx(0.1), "p95": pytest.approx(0.1)}
    assert found["itl_ms"]["mean"] == pytest.approx(-0.1)
    assert errors(real, Simulation()) == {}


# ---------------------------------------------------------------------- workloads


def test_bursts_have_the_same_rate_and_more_spread():
    def pauses(burstiness: float) -> list[float]:
        lengths = [(1, 1)] * 4000
        arrivals = make_arrivals(Workload(lengths, 5.0, 100, burstiness=burstiness))
        times = [one.arrival_s for one in arrivals]
        return [after - before for before, after in pairwise(times)]

    plain, bursty = pauses(1.0), pauses(0.25)
    assert fmean(plain) == pytest.approx(0.2, rel=0.1)
    assert fmean(bursty) == pytest.approx(0.2, rel=0.1)
    assert stdev(bursty) > 1.7 * stdev(plain)


def test_prompts_begin_with_one_of_some_texts_and_users_differ():
    lengths = [(20, 1)] * 600
    workload = Workload(lengths, None, 1000, num_shared=8, num_prefixes=3, num_users=3)
    arrivals = make_arrivals(workload)
    assert len({tuple(one.prompt_token_ids[:8]) for one in arrivals}) == 3
    assert {len(one.prompt_token_ids) for one in arrivals} == {20}
    counts = Counter(one.metadata["user"] for one in arrivals)
    assert counts["user-1"] > 1.5 * counts["user-2"] > 1.5 * counts["user-3"] > 0
    assert make_arrivals(workload) == arrivals


def test_a_trace_says_for_policies_what_requests_say(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    lines = [{"arrival_s": 0, "prompt_tokens": 8, "output_tokens": 40} for _ in range(6)]
    for line, service_class in zip(lines[3:], ["interactive"] * 3, strict=True):
        line |= {"user": "u", "session_id": "s", "extra_args": {"service_class": service_class}}
    trace.write_text("\n".join(map(json.dumps, lines)))
    words = ["--trace", str(trace), "--max-num-seqs", "1"]
    reports = simulate_all(capsys, *words, "--compare", "fcfs,deadline,qos")
    means = {name: one["ttft_ms_by_user"]["u"]["mean"] for name, one in reports.items()}
    assert means["deadline"] == means["qos"] < means["fcfs"]
    assert main(["simulate", *COSTS, *words]) == 2
    assert "no component in use declares a parameter 'service_class'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs to know what steps cost"),
        ([*COSTS, "--rate", "0"], "--rate 0.0 is no number of arrivals"),
        ([*COSTS, "--rate", "nan"], "--rate nan is no number of arrivals"),
        ([*COSTS, "--burstiness", "0"], "--burstiness 0.0 is no shape of a distribution"),
        ([*COSTS, "--num-prompts", "0"], "--num-prompts must be at least 1"),
        ([*COSTS, "--num-users", "0"], "--num-users must be at least 1"),
        ([*COSTS, "--compare", "fcfs,nobody"], "unknown scheduler 'nobody'"),
        ([*COSTS, "--compare", "dialect:openai,x"], "no kind 'dialect' of which one is in use"),
        ([*COSTS, "--compare", "fcfs,fair", "--against-real"], "are two questions"),
        ([*COSTS, "--against-real"], "no model was named"),
        ([*COSTS, "--num-prompts", "2", "--plot", "/nowhere/p.png"], "cannot write the plot"),
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
        ("{", "Expecting property name"),
        ('{"arrival_s": 0}', "prompt_tokens is missing"),
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


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("[1]", "a line is an object of JSON, not [1]"),
        ("7", "a line is an object of JSON, not 7"),
        ('{"arrival_s": 0, "output_tokens": 1}', "prompt_tokens is missing"),
        (
            '{"arrival_s": "x", "prompt_tokens": 1, "output_tokens": 1}',
            "arrival_s: a number, not 'x'",
        ),
        (
            '{"arrival_s": 0, "prompt_tokens": 1.5, "output_tokens": 1}',
            "prompt_tokens: a whole number, not 1.5",
        ),
        (
            '{"arrival_s": 0, "prompt_token_ids": ["a"], "output_tokens": 1}',
            "prompt_token_ids: a list of whole numbers, not ['a']",
        ),
        (
            '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1, "extra_args": [1]}',
            "extra_args: an object of JSON, not [1]",
        ),
    ],
)
def test_a_wrong_value_of_a_trace_is_named_by_its_key(tmp_path, capsys, line, fact):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(line)
    assert main(["simulate", *COSTS, "--trace", str(trace)]) == 2
    assert f"line 1 of the trace '{trace}' is no request\n  {fact}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "error: no request was answered (fcfs): none came\n"),
        (
            '{"arrival_s": 0, "prompt_tokens": 900000, "output_tokens": 1}',
            "error: no request was answered (fcfs): all 1 were refused\n",
        ),
    ],
)
def test_a_run_that_answers_nobody_says_so_and_fails(tmp_path, capsys, text, said):
    trace = tmp_path / "trace.jsonl"
    trace.write_text(text)
    assert main(["simulate", *COSTS, "--trace", str(trace)]) == 1
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compare", "fcfs,priority,fcfs"], "'fcfs' is named twice"),
        (["--shared-prefix-len", "99999999"], "are more than the"),
        (["--input-len", "99999999"], "--input-len: 99999999 tokens are more than the"),
        (["--output-len", "99999999"], "--output-len: 99999999 tokens are more than the"),
        (["--plot", "/not/there/at.png"], "cannot write the plot '/not/there/at.png'"),
    ],
)
def test_what_would_be_cut_or_fail_late_is_refused(capsys, monkeypatch, words, said):
    monkeypatch.setattr("octavo.cli.plots.find_spec", lambda _: object())
    assert main(["simulate", *COSTS, "--num-prompts", "2", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_times_of_requests_without_a_token_count_nowhere():
    result = Simulation(fates=[Fate(1.0, 5), Fate(1.0, 5, 1.5, 2.5, 3, "length")])
    assert result.ttft_ms() == [500]
    assert result.tpot_ms() == [500]
    assert result.latency_ms() == [1500]
    assert summary([]) == {}
    assert summary(range(1, 102)) == {"mean": 51, "p50": 51, "p90": 91, "p95": 96, "p99": 100}
