"""Who has a model of a family that nobody serves is told so first, whatever else is missing."""

import json

import pytest

from octavo.config.resolve import resolve
from octavo.errors import ModelLoadError
from octavo.model_files import describe_model, open_checkpoint


@pytest.fixture
def folder(tmp_path):
    def make(architecture, **config):
        names = {"architectures": [architecture], "model_type": "x", "vocab_size": 8}
        (tmp_path / "config.json").write_text(json.dumps({**names, **config}))
        return tmp_path

    return make


@pytest.mark.parametrize("load_format", ["auto", "safetensors", "dummy"])
def test_an_unknown_architecture_is_reported_before_missing_weights(folder, load_format):
    path = folder("LamaForCausalLM")
    config = resolve(overrides={"load_format": load_format})

    with pytest.raises(ModelLoadError) as caught:
        open_checkpoint(config, path)

    first, second, third = str(caught.value).splitlines()
    assert first == f"unknown architecture 'LamaForCausalLM' (in {path})"
    assert second == "  did you mean 'LlamaForCausalLM'?"
    assert third.startswith("  known: ")
    assert "Qwen3ForCausalLM" in third


def test_the_server_too_reports_it_first(folder):
    path = folder("LamaForCausalLM")

    with pytest.raises(ModelLoadError, match="unknown architecture 'LamaForCausalLM'"):
        describe_model(resolve(), path)


def test_an_unknown_architecture_is_reported_before_damaged_weights(folder):
    path = folder("LamaForCausalLM")
    (path / "model.safetensors").write_bytes(b"not at all")

    with pytest.raises(ModelLoadError, match="unknown architecture 'LamaForCausalLM'"):
        open_checkpoint(resolve(), path)


def test_a_known_architecture_lacks_its_weights(folder):
    path = folder("LlamaForCausalLM")

    with pytest.raises(ModelLoadError, match="no weights component can open"):
        open_checkpoint(resolve(), path)


def test_what_is_no_model_is_reported_as_such(tmp_path):
    with pytest.raises(ModelLoadError, match="no weights component can open"):
        open_checkpoint(resolve(), tmp_path)
