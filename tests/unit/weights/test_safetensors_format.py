"""Hugging Face folders as checkpoints: which files are read, and what is refused."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from checkpoints import random_tensor, write_safetensors
from octavo.errors import ModelLoadError
from octavo_plugins.weights.safetensors_format import SafetensorsFormat

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 8, "rope_theta": 500000.0}
FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


def two_shards() -> list[dict[str, torch.Tensor]]:
    return [
        {"a.weight": random_tensor(4, 6, seed=1), "b.weight": random_tensor(3, seed=2)},
        {"c.weight": random_tensor(2, 5, seed=3, dtype=torch.bfloat16)},
    ]


def sharded(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "model", CONFIG, two_shards())


def values(checkpoint: Any) -> dict[str, list[int]]:
    return {name: checkpoint.blocks(name).data.tolist() for name in checkpoint.names()}


def failure(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        SafetensorsFormat().open(folder)
    return str(caught.value)


def test_a_single_file(tmp_path: Path) -> None:
    tensors = {
        "f32": random_tensor(2, 3),
        "f16": random_tensor(4, dtype=torch.float16),
        "bf16": random_tensor(2, 2, 3, dtype=torch.bfloat16),
        "scalar": torch.tensor(1.5),
    }
    folder = write_safetensors(tmp_path, CONFIG, [tensors])
    checkpoint = SafetensorsFormat().open(folder)

    assert sorted(checkpoint.names()) == ["bf16", "f16", "f32", "scalar"]
    for name, tensor in tensors.items():
        blocks = checkpoint.blocks(name)
        assert blocks.shape == tuple(tensor.shape)
        assert blocks.block_type == {"f16": "F16", "bf16": "BF16"}.get(name, "F32")
        assert blocks.source == str(folder / "model.safetensors")
        assert blocks.data.shape[0] == blocks.num_rows
        expected = tensor.reshape(-1).view(torch.uint8)
        assert torch.equal(torch.from_numpy(blocks.data).reshape(-1), expected)


def test_shards_by_their_index(tmp_path: Path) -> None:
    checkpoint = SafetensorsFormat().open(sharded(tmp_path))
    assert checkpoint.names() == ["a.weight", "b.weight", "c.weight"]
    first, second = two_shards()
    for name, tensor in (first | second).items():
        assert bytes(checkpoint.blocks(name).data) == bytes(tensor.view(torch.uint8).numpy())


def test_blocks_outlive_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = SafetensorsFormat().open(sharded(tmp_path))
    blocks = checkpoint.blocks("a.weight")
    before = blocks.data.copy()
    checkpoint.close()
    checkpoint.close()
    np.testing.assert_array_equal(blocks.data, before)
    with pytest.raises(ModelLoadError, match="was closed"):
        checkpoint.blocks("a.weight")


@pytest.mark.parametrize("quantised", [False, True])
def test_B137_a_missing_shard_is_named_with_its_tensors(tmp_path: Path, quantised: bool) -> None:
    folder = sharded(tmp_path)
    (folder / SECOND).unlink()
    if quantised:
        config = {**CONFIG, "quantization_config": {"quant_method": "gptq"}}
        (folder / "config.json").write_text(json.dumps(config))
        assert "quantised with gptq" in failure(folder)
        return
    assert failure(folder) == (
        f"the checkpoint '{folder}' is incomplete: 1 of 2 files are missing\n"
        f"  {SECOND}, which holds 'c.weight'\n"
        "  'model.safetensors.index.json' names them; fetch them, or the whole folder, again"
    )


@pytest.mark.parametrize("size", [0, 4, 8, 60, -1])
def test_B137_a_truncated_shard_is_named_with_its_tensors(tmp_path: Path, size: int) -> None:
    folder = sharded(tmp_path)
    data = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(data[:size])
    message = failure(folder)
    assert f"'{folder / SECOND}'" in message.splitlines()[0]
    assert message.splitlines()[-1] == "  it should hold 'c.weight'"


def test_B137_a_shard_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    shutil.copy(folder / FIRST, folder / SECOND)
    assert failure(folder) == (
        f"'{folder / SECOND}' lacks 1 tensors that 'model.safetensors.index.json' says it holds\n"
        "  absent are 'c.weight'"
    )


def test_B137_a_truncated_single_file_is_named(tmp_path: Path) -> None:
    folder = write_safetensors(tmp_path, CONFIG, two_shards()[:1])
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    message = failure(folder)
    assert message.startswith(f"'{path}' is no valid safetensors file\n")
    assert "not fully covered" in message


def test_B139_stray_files_are_left_alone(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    clean = values(SafetensorsFormat().open(folder))
    stray = write_safetensors(tmp_path / "stray", CONFIG, [{"a.weight": torch.zeros(4, 6)}])
    for name in ("model.safetensors", "consolidated.safetensors", "optimizer.safetensors"):
        shutil.copy(stray / "model.safetensors", folder / name)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04 not even a pickle")
    (folder / "model-00003-of-00002.safetensors").write_bytes(b"not safetensors")

    assert SafetensorsFormat().why_not(folder) == []
    assert values(SafetensorsFormat().open(folder)) == clean


def test_B139_without_an_index_only_the_single_file_is_read(tmp_path: Path) -> None:
    folder = write_safetensors(tmp_path, CONFIG, two_shards()[:1])
    clean = values(SafetensorsFormat().open(folder))
    (folder / "consolidated.safetensors").write_bytes(b"garbage")
    assert values(SafetensorsFormat().open(folder)) == clean


def test_B141_a_renamed_tensor_is_missed_by_name(tmp_path: Path) -> None:
    first, second = two_shards()
    renamed = {"foo": first.pop("b.weight"), **first}
    checkpoint = SafetensorsFormat().open(write_safetensors(tmp_path, CONFIG, [renamed | second]))
    assert "foo" in checkpoint.names()  # for the loader to warn of
    with pytest.raises(ModelLoadError) as caught:
        checkpoint.blocks("b.weight")
    assert str(caught.value) == (
        f"there is no tensor 'b.weight' in '{tmp_path}'\n"
        "  did you mean 'c.weight'?\n"
        "  it has 3 tensors"
    )


def test_B141_a_tensor_that_the_index_forgot_is_still_listed(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    del index["weight_map"]["b.weight"]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "b.weight" in SafetensorsFormat().open(folder).names()


def test_a_dtype_without_block_type_is_named(tmp_path: Path) -> None:
    tensors = {"ids": torch.arange(3), "a.weight": torch.ones(2)}
    checkpoint = SafetensorsFormat().open(write_safetensors(tmp_path, CONFIG, [tensors]))
    assert checkpoint.blocks("a.weight").columns == 2
    with pytest.raises(ModelLoadError, match=r"'ids' is of type I64(.|\n)*supported are F32"):
        checkpoint.blocks("ids")


@pytest.mark.parametrize("target", ["../other.safetensors", "/etc/passwd", "", 7, ".."])
def test_an_index_may_not_lead_out_of_its_folder(tmp_path: Path, target: object) -> None:
    folder = sharded(tmp_path)
    index = {"weight_map": {"a.weight": target}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"says that tensor 'a.weight' is in {target!r}" in failure(folder)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "is no valid JSON"),
        ("[]", "must hold a JSON object, not a list"),
        ("{}", "has no 'weight_map'"),
        ('{"weight_map": {}}', "has no 'weight_map'"),
    ],
)
def test_a_broken_index_is_named(tmp_path: Path, content: str, fault: str) -> None:
    folder = sharded(tmp_path)
    (folder / "model.safetensors.index.json").write_text(content)
    message = failure(folder)
    assert f"{folder / 'model.safetensors.index.json'}" in message
    assert fault in message


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("{", "is no valid JSON"),
        ("{}", "names no architecture"),
        ('{"architectures": []}', "names no architecture"),
        (None, "cannot read"),
    ],
)
def test_a_broken_config_is_named(tmp_path: Path, config: str | None, fault: str) -> None:
    folder = sharded(tmp_path)
    path = folder / "config.json"
    path.unlink() if config is None else path.write_text(config)
    message = failure(folder)
    assert fault in message
    assert str(path) in message
    with pytest.raises(ModelLoadError, match=fault):
        SafetensorsFormat().open_config(folder)


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
def test_quantised_weights_are_refused(tmp_path: Path, key: str) -> None:
    config = {**CONFIG, key: {"quant_method": "awq", "bits": 4}}
    folder = write_safetensors(tmp_path, config, two_shards())
    assert failure(folder) == (
        f"the weights in '{folder}' are quantised with awq, which is not supported\n"
        f"  '{folder / 'config.json'}' has a '{key}'\n"
        "  use the model's unquantised folder, or a GGUF file of it"
    )
    assert SafetensorsFormat().why_not(folder) == ["its weights are quantised with awq"]


def test_open_config_reads_no_weights(tmp_path: Path) -> None:
    extra = {"generation_config.json": {"eos_token_id": [1, 2], "temperature": 0.6}}
    folder = write_safetensors(tmp_path, CONFIG, two_shards(), extra=extra)
    (folder / SECOND).unlink()
    description = SafetensorsFormat().open_config(folder)
    assert description.config["vocab_size"] == 8
    assert description.generation_config == {"eos_token_id": [1, 2], "temperature": 0.6}
    assert description.tokenizer_path == folder


def test_without_a_generation_config_the_config_says_what_ends_a_text(tmp_path: Path) -> None:
    folder = write_safetensors(tmp_path, {**CONFIG, "eos_token_id": 2}, two_shards())
    assert SafetensorsFormat().open(folder).generation_config == {"eos_token_id": 2}


ROPE = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 7.0, "rope_scaling": ROPE},
        {"rope_theta": 7.0, "rope_scaling": {**ROPE, "type": "llama3"}},
        {"rope_parameters": {**ROPE, "rope_theta": 7.0}},
    ],
)
def test_both_spellings_of_rotary_scaling(tmp_path: Path, spelling: dict[str, Any]) -> None:
    config = {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    folder = write_safetensors(tmp_path, {**config, **spelling}, two_shards())
    result = SafetensorsFormat().open_config(folder).config
    assert result["rope_theta"] == 7.0
    assert result["rope_scaling"].items() >= ROPE.items()
    assert result["rope_parameters"].items() >= {**ROPE, "rope_theta": 7.0}.items()


def test_an_old_type_of_scaling_gets_its_new_name(tmp_path: Path) -> None:
    config = {
        **CONFIG,
        "max_position_embeddings": 64,
        "rope_scaling": {"type": "linear", "factor": 2.0},
    }
    folder = write_safetensors(tmp_path, config, two_shards())
    result = SafetensorsFormat().open_config(folder).config
    assert result["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    assert result["max_position_embeddings"] == 128


def test_no_scaling_is_said_in_both_spellings(tmp_path: Path) -> None:
    result = SafetensorsFormat().open_config(sharded(tmp_path)).config
    assert result["rope_scaling"] is None
    assert result["rope_parameters"] == {"rope_type": "default", "rope_theta": 500000.0}


def test_why_not_gives_all_reasons(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    assert SafetensorsFormat().why_not(tmp_path) == [
        f"'{tmp_path}' has no config.json",
        (
            f"'{tmp_path}' has neither model.safetensors.index.json nor model.safetensors, "
            "only pickled PyTorch files, which are not loaded"
        ),
    ]
    path = tmp_path / "pytorch_model.bin"
    assert SafetensorsFormat().why_not(path) == [f"'{path}' is no folder"]
