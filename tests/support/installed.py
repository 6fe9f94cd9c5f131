"""Plugins installed with pip as a third party would, and tiny models for the `octavo` command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from tokenizers import Tokenizer, models, pre_tokenizers

if TYPE_CHECKING:
    from collections.abc import Iterator

OCTAVO = Path(sysconfig.get_path("scripts")) / "octavo"
WORDS = ("<unk>", "<s>", "</s>", *(f"w{number}" for number in range(61)))
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": len(WORDS),
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


def install(target: Path, *projects: Path) -> dict[str, str]:
    """Install projects into a folder; return the environment of a machine that has them."""
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", target]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *projects], check=True)
    return {**os.environ, "PYTHONPATH": str(target)}


def octavo(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [OCTAVO, *words], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def make_tiny_model(folder: Path) -> Path:
    """Write a model folder with a config and a tokenizer; its weights are made up at load."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(TINY))
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
            while not _is_healthy(address):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield address
        finally:
            server.terminate()
            server.wait(30)


def _is_healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
