"""What a model's files say of vectors: sentence-transformers' folders, and GGUF's metadata."""

from __future__ import annotations

import json

import pytest

from checkpoints import llama_gguf
from embedding_models import write_pooling
from octavo.errors import ModelLoadError
from octavo.interfaces.weights import PoolingDescription
from octavo_plugins.weights.gguf_format import GgufFormat
from octavo_plugins.weights.pooling import folder_pooling


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ({"lasttoken": True, "cls_token": False}, "last"),
        ({"mean_tokens": True}, "mean"),
        ({"cls_token": True}, "cls"),
        ({"cls_token": True, "mean_tokens": True}, "cls and mean"),
        ({"weightedmean_tokens": True}, "weightedmean_tokens"),
        ({}, "mean"),  # as sentence-transformers has it
    ],
)
def test_the_mode_of_a_folder(tmp_path, modes, expected):
    for is_normalized in (True, False):
        write_pooling(tmp_path, is_normalized=is_normalized, **modes)
        assert folder_pooling(tmp_path) == PoolingDescription(expected, is_normalized)


def test_a_folder_without_such_files_says_nothing(tmp_path):
    assert folder_pooling(tmp_path) is None


def test_modules_that_are_not_computed_are_part_of_the_mode(tmp_path):
    write_pooling(tmp_path, mean_tokens=True)
    path = tmp_path / "modules.json"
    dense = {"idx": 3, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    path.write_text(json.dumps([*json.loads(path.read_text()), dense]))
    assert folder_pooling(tmp_path) == PoolingDescription("mean with Dense")


def test_the_place_of_the_module_is_below_the_folder(tmp_path):
    outside = tmp_path / "out" / "config.json"
    outside.parent.mkdir()
    outside.write_text('{"pooling_mode": "cls"}')
    folder = tmp_path / "model"
    folder.mkdir()
    write_pooling(folder, lasttoken=True)
    path = folder / "modules.json"
    path.write_text(path.read_text().replace('"1_Pooling"', '"../out"'))
    assert folder_pooling(folder) is None


@pytest.mark.parametrize("text", ["{}", "[1]", "no JSON"])
def test_a_wrong_list_of_modules_is_named(tmp_path, text):
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"modules\.json"):
        folder_pooling(tmp_path)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(None, None), (0, None), (1, "mean"), (2, "cls"), (3, "last"), (4, "rank"), (9, "9")],
)
def test_the_mode_of_a_gguf_file(tmp_path, number, expected):
    file = llama_gguf()
    if number is not None:
        file.metadata["llama.pooling_type"] = number
    found = GgufFormat().open_config(file.write(tmp_path / "m.gguf")).pooling
    assert (found is None) == (expected is None)
    if found is not None:
        assert found.mode.endswith(expected)
        assert found.is_normalized
