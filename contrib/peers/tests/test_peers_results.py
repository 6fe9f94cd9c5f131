"""What times come to."""

from __future__ import annotations

import json

import pytest

from octavo_peers.results import CaseTimes, Results, Run, Spread
from octavo_peers.work import Case

ONE, FOUR = Case(100, 1, 11), Case(100, 4, 11)
SETTINGS = {"num_rounds": 2, "num_threads": 2, "left_out": [], "contenders": []}


def results(*runs: Run, engines=("octavo", "llamacpp")) -> Results:
    return Results(engines, (ONE, FOUR), runs, SETTINGS, {"cpu": "any"})


def run(engine, round_number, *pairs, ids=(7,), **more) -> Run:
    return Run(engine, round_number, times=(CaseTimes(ONE, pairs, ids),), **more)


def test_the_rate_of_a_process_is_the_median_of_its_pairs():
    times = CaseTimes(ONE, ((1.0, 2.0), (2.0, 3.0), (4.0, 9.0)))

    assert times.rate("prefill") == 50
    assert times.rate("decode") == 10


def test_pairs_without_a_decode_rate_do_not_count():
    assert CaseTimes(ONE, ((1.0, 2.0), (3.0, 2.0))).rate("decode") == 10
    assert CaseTimes(ONE, ((3.0, 2.0),)).rate("decode") is None
    assert CaseTimes(ONE, error="no memory").rate("prefill") is None


def test_a_spread_has_the_median_of_the_rounds_and_their_range():
    spread = Spread.of([10.0, None, 40.0, 20.0])

    assert spread == Spread(20.0, 10.0, 40.0)
    assert spread.band == 1.5
    assert Spread.of([None]) is None


def test_ratios_are_of_medians():
    measured = results(
        run("octavo", 0, (1.0, 1.5)),
        run("llamacpp", 0, (2.0, 4.0)),
        run("llamacpp", 1, (4.0, 14.0)),
        run("octavo", 1, (1.0, 1.25)),
    )

    assert measured.rate("octavo", ONE, "prefill") == Spread(100, 100, 100)
    assert measured.rate("llamacpp", ONE, "prefill") == Spread(37.5, 25, 50)
    assert measured.ratio("llamacpp", ONE, "prefill") == pytest.approx(100 / 37.5)
    assert measured.ratio("llamacpp", ONE, "decode") == pytest.approx(30 / 3)
    assert measured.ratio("octavo", ONE, "decode") == 1
    assert measured.ratio("llamacpp", FOUR, "decode") is None


def test_the_widest_band_needs_two_rounds():
    first = run("octavo", 0, (1.0, 2.0))

    assert results(first).widest_band("octavo") is None
    both = results(first, run("octavo", 1, (1.0, 3.0)))
    assert both.widest_band("octavo") == pytest.approx(5 / 7.5)
    assert both.widest_band("llamacpp") is None


def test_first_ids_are_compared_with_octavos():
    measured = results(
        run("octavo", 0, (1.0, 2.0), ids=(1, 2, 3, 4)),
        run("llamacpp", 0, (1.0, 2.0), ids=(1, 2, 3, 5)),
        engines=("octavo", "llamacpp", "vllm"),
    )

    assert measured.same_first_ids("llamacpp") == 0.75
    assert measured.same_first_ids("vllm") is None


def test_each_failure_is_said_once():
    failed = CaseTimes(FOUR, error="MemoryError: too much")
    measured = results(
        Run("octavo", 0, times=(failed,)),
        Run("octavo", 1, times=(failed,)),
        Run("llamacpp", 0, error="not found"),
    )

    assert measured.errors() == [
        "llamacpp: not found",
        "octavo, 100 in x4: MemoryError: too much",
    ]


def test_results_are_kept_as_json_with_a_summary():
    measured = results(
        run("octavo", 0, (1.0, 1.5), version="0.1.0", start_s=2.5),
        run("llamacpp", 0, (2.0, 4.0), error="killed"),
    )
    kept = json.loads(json.dumps(measured.to_json()))

    assert Results.from_json(kept) == measured
    assert len(kept["summary"]) == 4
    assert kept["summary"][1] == {
        "num_prompt_tokens": 100,
        "num_seqs": 1,
        "num_output_tokens": 11,
        "num_prefix_tokens": 0,
        "phase": "prefill",
        "engine": "llamacpp",
        "median": 50.0,
        "low": 50.0,
        "high": 50.0,
        "octavo_over_engine": 2.0,
    }
