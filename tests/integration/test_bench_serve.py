"""`octavo bench serve` against a server."""

import json

import pytest

from octavo.cli.main import main
from server_process import SCRIPTED, ServerProcess


@pytest.fixture(scope="module")
def server():
    options = {"access_log": False, "api_key": ["k"], "script": {"max_model_len": 4000}}
    with ServerProcess(*SCRIPTED, json.dumps(options)) as running:
        yield running


def bench(server, capsys, *words, code=0):
    words = ["bench", "serve", "--base-url", server.url, "--api-key", "k", *words]
    assert main(words) == code
    return capsys.readouterr()


def test_several_rates_in_one_run(server, capsys):
    words = ["--request-rate", "inf,200", "--request-rate", "100", "--num-prompts", "20"]
    words += ["--input-len", "60", "--output-len", "12", "--goodput", "ttft:5000", "e2el:9000"]
    report = json.loads(bench(server, capsys, *words, "--json").out)

    assert report["model"] == "scripted"
    assert list(report["runs"]) == ["inf", "200/s", "100/s"]
    for run in report["runs"].values():
        assert (run["answered"], run["failed"]) == (20, 0)
        assert run["output_tokens"] == 20 * 12
        assert run["prompt_tokens"] / 20 == pytest.approx(60, rel=0.15)
        assert run["chunks"] > 20
        assert 0 < run["ttft_ms"]["p50"] <= run["ttft_ms"]["p99"] <= run["e2e_ms"]["max"]
        assert run["within_slo"] == 20
        assert run["client_us_per_chunk"] > 0
    assert report["runs"]["100/s"]["elapsed_s"] > 0.1


def test_so_many_at_once_and_no_more(server, capsys):
    words = ["--num-prompts", "12", "--max-concurrency", "3", "--output-len", "8"]
    report = json.loads(bench(server, capsys, *words, "--json").out)
    assert report["runs"]["inf"]["most_in_flight"] == 3


def test_people_see_tables_and_lines(server, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    words = ["--num-prompts", "6", "--output-len", "8", "--goodput", "ttft:5000", "--plot"]
    out = bench(server, capsys, *words, "--endpoint", "/v1/completions").out

    for text in ("model: scripted", "throughput", "times, in ms", "first text", "p99"):
        assert text in out
    assert "100% of all within ttft 5000 ms" in out
    assert "of a core" in out
    assert "time to first text, ms, from" in out
    assert "requests on their way over" in out


def test_an_image_is_drawn(server, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    for name, begins in (("p.png", b"\x89PNG"), ("p.svg", b"<?xml")):
        bench(server, capsys, "--num-prompts", "4", "--plot", str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(begins)


def test_errors_are_counted_by_kind_and_shown(server, capsys, tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "hello", "output_tokens": 4}, {"prompt": "x" * 5000, "output_tokens": 4}]
    path.write_text("\n".join(map(json.dumps, lines)))
    words = ["--dataset-path", str(path), "--num-prompts", "4"]
    report = json.loads(bench(server, capsys, *words, "--json", code=1).out)

    run = report["runs"]["inf"]
    assert (run["answered"], run["errors"]) == (2, {"HTTP 400": 2})
    assert "maximum context length" in run["error_examples"]["HTTP 400"]
    assert "2 failed: HTTP 400" in bench(server, capsys, *words, code=1).out


def test_further_fields_are_sent(server, capsys):
    extra = json.dumps({"vllm_xargs": {"fail_at": 1}})
    words = ["--num-prompts", "1", "--extra-body", extra]
    err = bench(server, capsys, *words, code=1).err
    assert "error in the stream\n  the logits of this request were NaN" in err


def test_a_server_that_wants_another_key_is_told(server, capsys):
    assert main(["bench", "serve", "--base-url", server.url]) == 1
    assert "cannot be measured: HTTP 401\n  the API key is missing or wrong" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--request-rate", "0"], "is no number of requests a second"),
        (["--request-rate", "nan"], "is no number of requests a second"),
        (["--goodput", "tft:5"], "did you mean 'ttft'?"),
        (["--goodput", "ttft:x"], "is no promise"),
        (["--num-prompts", "0"], "--num-prompts must be at least 1"),
        (["--burstiness", "0"], "--burstiness must be above 0"),
        (["--extra-body", "[]"], "--extra-body is no JSON object"),
        (["--base-url", "ftp://x"], "invalid --base-url"),
        (["--dataset-path", "/nowhere"], "cannot read the prompts"),
        (["--dataset-path", "x", "--sharegpt-like"], "has lengths of its own"),
    ],
)
def test_wrong_flags_are_refused(capsys, words, text):
    assert main(["bench", "serve", *words]) == 2
    assert text in capsys.readouterr().err
