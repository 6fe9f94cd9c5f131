"""Small models in every stock format, written once for a run: samples of the conformance kit."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from byte_models import LLAMA, save_byte_model, save_dummy_model
from checkpoints import GgufFile, byte_vocabulary, llama_gguf

KEPT = tempfile.TemporaryDirectory(prefix="octavo-samples-")


def folder(name: str) -> Path:
    path = Path(KEPT.name) / name
    path.mkdir()
    return path


@functools.cache
def model_folder() -> Path:
    """A model of bytes as Hugging Face's folders have it."""
    return Path(save_byte_model(LLAMA, folder("byte-model")))


@functools.cache
def gguf_model() -> Path:
    return llama_gguf().write(folder("gguf") / "tiny.gguf")


@functools.cache
def gguf_vocabulary() -> Path:
    metadata = byte_vocabulary("<|end|>", "<|turn|>", merges=[("a", "b"), ("ab", "b")])
    metadata["tokenizer.ggml.eos_token_id"] = 258
    return GgufFile(metadata).write(folder("vocabulary") / "tiny.gguf")


@functools.cache
def dummy_model() -> Path:
    return save_dummy_model(folder("dummy"))


def local_references() -> dict[str, str]:
    return {"good": str(model_folder()), "bad": "./there/is/no/such/model"}
