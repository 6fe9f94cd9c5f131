from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import ModelLoadError
from octavo.frontend.defaults import generation_defaults
from octavo.interfaces.weights import ModelDescription


def _model(config=None, **generation_config):
    return ModelDescription(Path("model"), config or {}, generation_config)


def test_model_that_says_nothing_has_no_defaults():
    defaults = generation_defaults(_model())
    assert (dict(defaults.sampling), defaults.max_new_tokens) == ({}, None)
    params = defaults.sampling_params()
    assert (params.temperature, params.top_p, params.max_tokens) == (1.0, 1.0, 16)


def test_names_of_the_file_become_sampling_defaults():
    defaults = generation_defaults(
        _model(
            temperature=0.6, top_k=20, top_p=0.95, min_p=None, do_sample=True, max_new_tokens=8,
            eos_token_id=[2, 7],
        )
    )  # fmt: skip
    assert defaults.eos_token_ids == (2, 7)
    params = defaults.sampling_params()
    assert (params.temperature, params.top_k, params.top_p) == (0.6, 20, 0.95)
    assert params.max_tokens is None  # the model's own, or what the context leaves of it


def test_sampling_defaults_can_be_turned_off_but_ids_that_end_a_text_stay():
    model = _model(temperature=0.6, eos_token_id=7, max_new_tokens=8)
    defaults = generation_defaults(model, has_sampling=False)
    assert (dict(defaults.sampling), defaults.max_new_tokens) == ({}, None)
    assert defaults.eos_token_ids == (7,)


def test_ids_of_the_models_config_count_where_the_other_file_names_none():
    assert generation_defaults(_model({"eos_token_id": [1, 2]})).eos_token_ids == (1, 2)
    assert generation_defaults(_model({"eos_token_id": 1}, eos_token_id=3)).eos_token_ids == (3,)
    assert generation_defaults(_model({"eos_token_id": -1})).eos_token_ids == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"temperature": 9}, "temperature must be between 0 and 2, not 9"),
        ({"max_new_tokens": "x"}, "max_new_tokens must be an integer, not 'x'"),
        ({"eos_token_id": "x"}, r"eos_token_id must be an id or a list of ids, not 'x' \(in model"),
    ],
)
def test_wrong_values_name_the_model_and_the_field(content, message):
    with pytest.raises(ModelLoadError, match=message) as caught:
        generation_defaults(_model(**content))
    assert "model" in caught.value.headline
