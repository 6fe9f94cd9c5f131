"""What a call asks of vectors, against what a model's files say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.engine.messages import EngineInfo
from octavo.errors import ModelLoadError, RequestError, RequestFailedError
from octavo.frontend.outputs import CompletionOutput, RequestOutput
from octavo.frontend.pooling import PoolingDefaults, pooling_defaults, pooling_plan
from octavo.frontend.vectors import similarity, vector_of
from octavo.interfaces.weights import ModelDescription, PoolingDescription
from octavo.pooling_params import PoolingParams

INFO = EngineInfo(100, max_model_len=50, capacity_tokens=100)


def defaults_of(config=None, pooling=None, setting="auto"):
    return pooling_defaults(ModelDescription(Path("m"), config or {}, pooling=pooling), setting)


def plan_of(defaults, **values):
    return pooling_plan(PoolingParams(**values), defaults, INFO)


def output_of(vector, error=None):
    pooled = None if vector is None else np.asarray(vector, "<f4").tobytes()
    choice = CompletionOutput(0, "", [], error=error)
    return RequestOutput("r", None, [1], [choice], finished=True, pooled=pooled)


def test_a_model_that_says_nothing_pools_the_last_token_to_length_one():
    plan = pooling_plan(None, defaults_of({"hidden_size": 8}), INFO)
    assert (plan.mode, plan.is_normalized, plan.dimensions) == ("last", True, None)
    assert plan.sampling.truncate_prompt_tokens is None


def test_files_settings_and_calls_go_before_one_another():
    said = PoolingDescription("mean", is_normalized=False)
    assert plan_of(defaults_of(pooling=said)).mode == "mean"
    assert not plan_of(defaults_of(pooling=said)).is_normalized
    assert plan_of(defaults_of(pooling=said, setting="last")).mode == "last"
    assert plan_of(defaults_of(pooling=said, setting="last"), pooling="mean").mode == "mean"
    assert plan_of(defaults_of(pooling=said), normalize=True).is_normalized


def test_minus_one_truncates_to_the_context():
    assert plan_of(defaults_of(), truncate_prompt_tokens=-1).sampling.truncate_prompt_tokens == 50


@pytest.mark.parametrize(
    ("config", "good", "bad"),
    [
        ({"hidden_size": 8}, [8], [1, 7, 9]),
        ({"hidden_size": 8, "is_matryoshka": True}, [1, 7, 8], [9]),
        ({"hidden_size": 8, "matryoshka_dimensions": [4, 2]}, [2, 4, 8], [1, 3, 9]),
        ({"text_config": {"hidden_size": 8}}, [8], [4]),
        ({}, [], [4]),
    ],
)
def test_dimensions_are_those_a_model_was_trained_for(config, good, bad):
    defaults = defaults_of(config)
    for dimensions in good:
        assert plan_of(defaults, dimensions=dimensions).dimensions == dimensions
    for dimensions in bad:
        with pytest.raises(RequestError) as caught:
            plan_of(defaults, dimensions=dimensions)
        assert caught.value.param == "dimensions"


@pytest.mark.parametrize("lengths", ["x", [0], [True], {"a": 1}, [1.5]])
def test_wrong_lengths_in_a_config_name_the_model(lengths):
    with pytest.raises(ModelLoadError, match=r"matryoshka_dimensions must be a list .*\(in m\)"):
        defaults_of({"matryoshka_dimensions": lengths})


def test_vectors_are_cut_before_they_are_scaled():
    defaults = PoolingDefaults(can_be_cut=True)
    vector = vector_of(output_of([3, 4, 12]), plan_of(defaults, dimensions=2))
    assert vector.tolist() == pytest.approx([0.6, 0.8])
    whole = vector_of(output_of([3, 4, 12]), plan_of(defaults, use_activation=False))
    assert whole.tolist() == [3, 4, 12]
    assert vector_of(output_of([0, 0]), plan_of(defaults)).tolist() == [0, 0]
    with pytest.raises(RequestError, match="dimensions must be at most 3, not 4"):
        vector_of(output_of([3, 4, 12]), plan_of(defaults, dimensions=4))


def test_a_prompt_that_failed_has_no_vector():
    with pytest.raises(RequestFailedError, match="it broke"):
        vector_of(output_of(None, "it broke\nin the middle"), plan_of(defaults_of()))


def test_similarity_is_a_cosine():
    one, other = np.asarray([1, 0], "<f4"), np.asarray([5, 5], "<f4")
    assert similarity(one, other) == pytest.approx(0.5**0.5)
    assert similarity(one, -3 * one) == pytest.approx(-1)
    assert similarity(one, 0 * one) == 0
