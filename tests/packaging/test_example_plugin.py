"""A third party's plugin, installed with pip as a third party would, serves a request."""

import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from source_tree import ROOT

OCTAVO = Path(sysconfig.get_path("scripts")) / "octavo"
EXAMPLE = ROOT / "contrib" / "octavo-example-scheduler"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """The environment of a machine that has the example installed."""
    target = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", target]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, EXAMPLE], check=True)
    return {**os.environ, "PYTHONPATH": str(target)}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory) -> Path:
    """A model folder with a config and a tokenizer; its weights are made up at load."""
    folder = tmp_path_factory.mktemp("tiny")
    words = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(61))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(words),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@contextmanager
def serving(words: list[str], environment: dict[str, str], log: Path) -> Iterator[str]:
    """Run `octavo serve` until the block ends; yield its address once it is healthy."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [OCTAVO, "serve", *words, "--host", "127.0.0.1", "--port", str(port)]
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as server,
    ):
        try:
            deadline = time.monotonic() + 60
            while not is_healthy(address):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield address
        finally:
            server.terminate()
            server.wait(30)


def is_healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def octavo(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [OCTAVO, *words], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


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
