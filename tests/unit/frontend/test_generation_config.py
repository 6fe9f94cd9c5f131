from __future__ import annotations

import json

import pytest

from octavo.errors import ConfigError, ModelLoadError
from octavo.frontend.generation_config import load_generation_defaults


def _folder(path, content):
    (path / "generation_config.json").write_text(
        content if isinstance(content, str) else json.dumps(content)
    )
    return path


def test_model_without_the_file_has_no_defaults(tmp_path):
    defaults = load_generation_defaults(tmp_path)
    assert (dict(defaults.sampling), defaults.max_new_tokens) == ({}, None)
    params = defaults.sampling_params()
    assert (params.temperature, params.top_p, params.max_tokens) == (1.0, 1.0, 16)


def test_names_of_the_file_become_sampling_defaults(tmp_path):
    _folder(tmp_path, {
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [2, 7], "do_sample": True,
        "max_new_tokens": 8, "min_p": None,
    })  # fmt: skip
    defaults = load_generation_defaults(tmp_path)
    assert defaults.eos_token_ids == (2, 7)
    params = defaults.sampling_params()
    assert (params.temperature, params.top_k, params.top_p) == (0.6, 20, 0.95)
    assert params.max_tokens == 8


@pytest.mark.parametrize("choice", ["none", "vllm"])
def test_defaults_can_be_turned_off_but_ids_that_end_a_text_stay(tmp_path, choice):
    _folder(tmp_path, {"temperature": 0.6, "eos_token_id": 7, "max_new_tokens": 8})
    defaults = load_generation_defaults(tmp_path, choice)
    assert (dict(defaults.sampling), defaults.max_new_tokens) == ({}, None)
    assert defaults.eos_token_ids == (7,)


def test_another_folder_may_be_named(tmp_path):
    _folder(tmp_path, {"temperature": 0.5})
    model = tmp_path / "model.gguf"
    model.touch()
    assert load_generation_defaults(model, str(tmp_path)).sampling == {"temperature": 0.5}
    with pytest.raises(ConfigError, match=r"no generation_config\.json in"):
        load_generation_defaults(tmp_path, str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot read"), ("[1]", "must hold a JSON object, not list"),
        ({"temperature": 9}, "temperature must be between 0 and 2, not 9"),
        ({"max_new_tokens": "x"}, "max_new_tokens must be an integer"),
        ({"eos_token_id": "x"}, "eos_token_id must be an id or a list of ids"),
        ({"eos_token_id": [-1]}, "eos_token_id must be an id or a list of ids"),
    ],
)  # fmt: skip
def test_wrong_files_are_named(tmp_path, content, message):
    with pytest.raises(ModelLoadError, match=message) as caught:
        load_generation_defaults(_folder(tmp_path, content))
    assert "generation_config.json" in str(caught.value)
