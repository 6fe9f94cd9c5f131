"""Files that are no files: a FIFO, a device or a socket where a model's file should be."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
import tokenizers

from checkpoints import random_tensor, write_safetensors
from octavo.config.resolve import resolve
from octavo.errors import ModelLoadError, ModelNotFoundError, OctavoError
from octavo.model_files import describe_model, load_tokenizer, locate_model, open_checkpoint
from octavo_plugins.formats.gguf_header import is_gguf
from octavo_plugins.formats.regular_file import open_regular, read_regular

CONFIG = {"architectures": ["LlamaForCausalLM"]}
INDEX = "model.safetensors.index.json"


def within(seconds, call):
    """Return what a call raised; a call that waits for ever is a failure, not a hang."""
    raised = []

    def run():
        try:
            call()
        except OctavoError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits"
    assert raised, "nothing was raised"
    return raised[0]


def open_all(reference, **settings):
    config = resolve(overrides={"model": str(reference), **settings})
    path = locate_model(config)
    description = describe_model(config, path)
    open_checkpoint(config, path).close()
    load_tokenizer(config, description)


def folder_without(tmp_path, name):
    """Write a model's folder in which the file of a name is a FIFO."""
    folder = write_safetensors(tmp_path / "model", CONFIG, [{"a": random_tensor(2, 3)}])
    (folder / "tokenizer.json").write_text("{}")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    return folder


@pytest.mark.parametrize("load_format", ["auto", "safetensors"])
@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "model.safetensors", INDEX, "tokenizer.json"],
)
def test_a_fifo_in_a_model_folder_is_an_error_that_names_it(tmp_path, name, load_format):
    folder = folder_without(tmp_path, name)
    error = within(5, lambda: open_all(folder, load_format=load_format))
    assert str(folder / name) in str(error)
    assert "it is a FIFO, not a file" in str(error)


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "chat_template.jinja", "additional_chat_templates/a.jinja"]
)
def test_a_fifo_beside_a_tokenizer_is_an_error(tmp_path, name):
    folder = folder_without(tmp_path, name)
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(folder / "tokenizer.json"))
    assert "it is a FIFO, not a file" in str(within(5, lambda: open_all(folder)))


@pytest.mark.parametrize("load_format", ["auto", "gguf", "dummy"])
def test_a_fifo_that_is_called_a_gguf_file(tmp_path, load_format):
    os.mkfifo(tmp_path / "model.gguf")
    error = within(5, lambda: open_all(tmp_path, load_format=load_format))
    assert isinstance(error, ModelLoadError)
    assert str(tmp_path / "model.gguf") in str(error)


def test_a_fifo_as_the_model_itself(tmp_path):
    os.mkfifo(tmp_path / "model.gguf")
    error = within(5, lambda: open_all(tmp_path / "model.gguf"))
    assert isinstance(error, ModelNotFoundError)
    assert "is neither a file nor a folder" in error.headline


def test_each_other_kind_is_refused_by_its_name(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path, kind in (
            (tmp_path / "fifo", "a FIFO"),
            (tmp_path / "socket", "a socket"),
            (tmp_path, "a folder"),
            (Path("/dev/zero"), "a device"),
        ):
            with pytest.raises(OSError, match=f"it is {kind}, not a file"):
                open_regular(path)
            assert not is_gguf(path)


def test_links_are_followed_and_sizes_are_limited(tmp_path):
    (tmp_path / "file").write_bytes(b"12345678")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 8) == b"12345678"
    with pytest.raises(OSError, match="it has 8 bytes, and may have 7 at most"):
        read_regular(tmp_path / "link", 7)
