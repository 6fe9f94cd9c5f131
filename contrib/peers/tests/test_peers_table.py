"""The table, and what is drawn."""

from __future__ import annotations

import importlib.util

import pytest

from octavo.errors import ConfigError
from octavo_peers.engines import ENGINES
from octavo_peers.plot import Line, lines, require_plot, save_plot
from octavo_peers.results import CaseTimes, Results, Run
from octavo_peers.table import rate_text, ratio_text, render
from octavo_peers.work import Case

CASES = (Case(128, 1, 64), Case(128, 16, 64), Case(2048, 1, 64))
LEGEND = """\
Tokens/s of all sequences together, medians of the rounds; in brackets octavo /
peer. prefill: prompt tokens over the time of a call for one token each. decode:
the tokens after the first, over what a call for all of them takes longer.
start: from the process's start to a first token. band: greatest less least
round over the median, of the engine's least steady row. same: sequences whose
first token is octavo's."""


def results(runs, engines=("octavo", "llamacpp"), cases=CASES, left_out=()) -> Results:
    contenders = [{"engine": engine, "model": "/models/demo.gguf"} for engine in engines]
    settings = {
        "num_rounds": 2,
        "num_threads": 2,
        "left_out": [vars(case) for case in left_out],
        "contenders": contenders,
    }
    machine = {"cpu": "Some CPU", "cores": 2, "load_average": 0.25}
    return Results(engines, cases, tuple(runs), settings, machine)


def run(engine, round_number, speed, start_s=1.0) -> Run:
    """A run that does each case at `speed` prompt tokens/s, and a tenth of that in decode."""
    times = []
    for case in CASES:
        first_s = case.num_seqs * case.num_prompt_tokens / speed
        pair = (first_s, first_s + case.num_seqs * 63 / (speed / 10))
        times.append(CaseTimes(case, (pair,), (5,) * case.num_seqs))
    return Run(engine, round_number, "1.0", start_s, tuple(times))


RUNS = (
    run("octavo", 0, 1000, 2.0),
    run("llamacpp", 0, 200, 0.5),
    run("llamacpp", 1, 240, 0.7),
    run("octavo", 1, 900, 2.5),
)


def test_the_table_has_medians_and_ratios():
    expected = """\
demo.gguf, 2 threads, 2 rounds
Some CPU, 2 cores, load 0.2

             octavo     llamacpp
128 tokens in, 64 out
prefill x1      950   220 (4.32)
prefill x16     950   220 (4.32)
decode x1      95.0  22.0 (4.32)
decode x16     95.0  22.0 (4.32)
2048 tokens in, 64 out
prefill x1      950   220 (4.32)
decode x1      95.0  22.0 (4.32)

start         2.2 s        0.6 s
band            11%          18%
same              -         100%

"""
    assert render(results(RUNS)) == expected + LEGEND


def test_what_failed_or_was_left_out_is_said():
    failed = CaseTimes(CASES[0], error="RuntimeError: llama_decode returned 1")
    runs = [run("octavo", 0, 1000), Run("llamacpp", 0, times=(failed,))]
    text = render(results(runs, cases=CASES[:1], left_out=[Case(8128, 64, 64)]))

    assert "prefill x1    1000         -\n" in text
    assert "start        1.0 s         -\n" in text
    assert text.endswith(
        f"{LEGEND}\n\nleft out: 8128 in x64, too many tokens in all\n"
        "llamacpp, 128 in x1: RuntimeError: llama_decode returned 1"
    )


def test_a_shared_prefix_is_named():
    case = Case(128, 1, 64, num_prefix_tokens=1024)

    assert "\n1024 shared + 128 tokens in, 64 out\n" in render(results([], cases=(case,)))


def test_all_engines_fit_on_eighty_columns():
    runs = [run(engine, 0, 98765 if engine == "octavo" else 12345.6) for engine in ENGINES]
    runs[-1] = run("transformers", 0, 12.3)
    text = render(results(runs, tuple(ENGINES)))

    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("rate", "text"), [(1234.5, "1234"), (99.96, "100.0"), (100.4, "100"), (8.04, "8.0")]
)
def test_rates_have_three_digits_or_all(rate, text):
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.123, "0.12"), (2.204, "2.20"), (12.34, "12.3"), (1234.0, "1234")]
)
def test_ratios_have_three_digits(ratio, text):
    assert ratio_text(ratio) == text


def test_a_line_has_a_point_for_each_number_that_was_measured():
    measured = results([*RUNS, Run("vllm", 0, error="not found")], ("octavo", "llamacpp", "vllm"))
    panel = lines(measured, 128, "prefill")

    assert [line.engine for line in panel] == ["octavo", "llamacpp", "vllm"]
    assert panel[1] == Line(
        "llamacpp",
        [1, 16],
        [pytest.approx(220)] * 2,
        [pytest.approx(200)] * 2,
        [pytest.approx(240)] * 2,
    )
    assert panel[2].num_seqs == []


def test_without_matplotlib_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(ConfigError, match="--plot needs matplotlib, which is not installed"):
        require_plot(tmp_path / "plot.png")


def test_without_a_folder_for_it_nothing_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)

    with pytest.raises(ConfigError, match=r"there is no folder .*none \(--plot .*plot.png\)"):
        require_plot(tmp_path / "none" / "plot.png")


def test_a_plot_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    save_plot(results(RUNS), tmp_path / "plot.png")

    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
