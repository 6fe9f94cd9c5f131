"""What `LLM(...)` takes, and how it is refused, before any model is touched."""

from __future__ import annotations

import pytest

from octavo import LLM, AsyncLLM
from octavo.errors import ConfigError, ModelNotFoundError, UnknownComponentError
from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.plugin.options import ComponentOptions


class _OpenedError(Exception):
    """Carries the config that `open_model` was given."""


class LastFirst(SchedulerPolicy):
    class Options(ComponentOptions):
        strength: float = 1.0


@pytest.fixture(params=[LLM, AsyncLLM])
def config_of(request, monkeypatch):
    """Return the config that the settings resolve to."""

    def stop(config):
        raise _OpenedError(config)

    monkeypatch.setattr(f"{request.param.__module__}.open_model", stop)

    def config_of(**settings):
        with pytest.raises(_OpenedError) as caught:
            request.param("smollm2", **settings)
        return caught.value.args[0]

    return config_of


def test_vllms_keywords_reach_the_config(config_of):
    config = config_of(
        tokenizer="other", max_num_seqs=3, max_num_batched_tokens=64, block_size=8,
        max_model_len=128, enable_prefix_caching=False, num_gpu_blocks_override=50, seed=5,
        dtype="float32", generation_config="none", tensor_parallel_size=1, quantization=None,
    )  # fmt: skip
    assert (config.model.name, config.model.tokenizer) == ("smollm2", "other")
    engine = config.engine
    assert (engine.max_num_seqs, engine.max_num_batched_tokens, engine.block_size) == (3, 64, 8)
    assert (engine.max_model_len, engine.num_gpu_blocks_override, engine.seed) == (128, 50, 5)
    assert not engine.enable_prefix_caching


def test_a_kind_is_chosen_by_name_by_class_or_with_options(config_of):
    assert config_of(scheduler="priority").chosen["scheduler"].name == "priority"
    by_class = config_of(scheduler=LastFirst).chosen["scheduler"]
    assert (by_class.name, by_class.cls) == ("last-first", LastFirst)
    with_options = config_of(scheduler={"use": LastFirst, "strength": 2}).chosen["scheduler"]
    assert with_options.build().options.strength == 2.0


def test_setting_without_effect_is_warned_of(config_of, caplog):
    config_of(gpu_memory_utilization=0.5)
    assert "gpu_memory_utilization= has no effect" in caplog.text


@pytest.mark.parametrize("cls", [LLM, AsyncLLM])
def test_unknown_keyword_names_the_nearest(cls):
    with pytest.raises(ConfigError) as caught:
        cls("smollm2", max_num_seq=3)
    assert str(caught.value) == (
        "unknown setting 'max_num_seq' (max_num_seq=)\n  did you mean 'max-num-seqs'?"
    )


def test_unknown_component_and_wrong_value_and_refused_setting():
    with pytest.raises(UnknownComponentError, match="did you mean 'priority'"):
        LLM("smollm2", scheduler="prioritty")
    with pytest.raises(ConfigError, match="max_num_seqs="):
        LLM("smollm2", max_num_seqs=0)
    with pytest.raises(ConfigError, match="pipeline_parallel_size= is not supported"):
        LLM("smollm2", pipeline_parallel_size=2)


def test_unknown_model_says_what_is_known():
    with pytest.raises(ModelNotFoundError, match="smollm2"):
        LLM("smollm")


def test_steps_are_bounded_in_time_where_somebody_reads_along(config_of, request):
    is_offline = request.node.callspec.params["config_of"] is LLM
    assert config_of().engine.max_step_ms == (None if is_offline else 250.0)
    assert config_of(max_step_ms=100).engine.max_step_ms == 100.0
