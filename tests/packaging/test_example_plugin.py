"""A third party's plugin, installed with pip as a third party would, serves a request."""

from pathlib import Path

import httpx
import pytest

from installed import install, make_tiny_model, octavo, serving
from source_tree import ROOT

EXAMPLE = ROOT / "contrib" / "octavo-example-scheduler"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """The environment of a machine that has the example installed."""
    return install(tmp_path_factory.mktemp("site"), EXAMPLE)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def test_it_is_listed_with_its_provider(environment):
    done = octavo(["plugins", "info", "sjf"], environment)

    assert done.stdout == (
        "scheduler 'sjf': shortest job first; a waiting request ages, so none starves\n"
        "  provider  octavo-example-scheduler 0.1.0\n"
        "  target    octavo_example_scheduler.sjf:ShortestJobFirst\n"
        "  options\n"
        "    ageing-tokens-per-s  default 100.0  "
        "how many tokens of length a second of waiting makes up for\n"
    )


def test_its_options_are_checked_before_anything_starts(environment, tiny_model):
    words = ["serve", str(tiny_model), "--scheduler=sjf", "--scheduler.ageing-tokens-per-s=0"]

    done = octavo(words, environment)

    assert done.returncode == 2
    assert done.stderr == (
        "error: invalid options of scheduler 'sjf' (--scheduler.ageing-tokens-per-s)\n"
        "  ageing-tokens-per-s: input should be greater than 0, got '0'\n"
    )


def test_it_serves_a_request(environment, tiny_model, tmp_path):
    words = [str(tiny_model), "--load-format", "dummy", "--served-model-name", "tiny"]
    words += ["--scheduler", "sjf", "--scheduler.ageing-tokens-per-s", "50"]
    body = {"model": "tiny", "prompt": "w1 w2 w3", "max_tokens": 4, "ignore_eos": True}

    with serving(words, environment, tmp_path / "log") as address:
        answer = httpx.post(f"{address}/v1/completions", json=body, timeout=30)

    data = answer.json()
    assert answer.status_code == 200, data
    assert (data["usage"]["prompt_tokens"], data["usage"]["completion_tokens"]) == (3, 4)
    assert data["choices"][0]["finish_reason"] == "length"
