"""Configs of Gemma 2 and 3 in both spellings, their defaults, and what is refused."""

from __future__ import annotations

import pytest

import tiny_models
from octavo.errors import ModelLoadError
from octavo_plugins.architectures.gemma_config import read_gemma_config
from tiny_models import FULL, SLIDING

GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
}
GEMMA2 = GEMMA3 | {"architectures": ["Gemma2ForCausalLM"]}
#: `config.json` of the 1b model as it was published, but for its sizes
PUBLISHED = GEMMA3 | {
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
}


def test_the_published_config_of_gemma3():
    config = read_gemma_config(PUBLISHED)
    assert config.decoder.windows == (512,) * 5 + (None, 512)
    assert config.is_local == (True,) * 5 + (False, True)
    assert (config.decoder.rotary.theta, config.local_rotary.theta) == (1e6, 1e4)
    assert config.decoder.max_positions == 131072
    assert config.decoder.attention_scale == 1 / 16
    assert config.embedding_scale == 8.0
    assert (config.decoder.has_qk_norm, config.decoder.is_tied) == (True, True)
    assert (config.decoder.attention_softcap, config.logit_softcap) == (None, None)


def test_the_defaults_of_gemma2():
    config = read_gemma_config(GEMMA2)
    assert config.decoder.windows == (4096, None, 4096, None, 4096, None, 4096)
    assert (config.decoder.attention_softcap, config.logit_softcap) == (50.0, 30.0)
    assert (config.decoder.rotary.theta, config.decoder.max_positions) == (1e4, 8192)
    assert config.local_rotary == config.decoder.rotary
    assert config.decoder.has_qk_norm is False


def test_older_scaling_is_that_of_the_layers_that_see_all():
    scaling = {"factor": 8.0, "rope_type": "linear"}
    old = read_gemma_config(PUBLISHED | {"rope_scaling": scaling})
    nested = {
        FULL: {**scaling, "rope_theta": 1e6},
        SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    }
    new = read_gemma_config(GEMMA3 | {"rope_parameters": nested})
    for config in (old, new):
        assert config.decoder.rotary.scaling["rope_type"] == "linear"
        assert config.decoder.rotary.scaling["factor"] == 8.0
        assert config.local_rotary.scaling["rope_type"] == "default"
        assert (config.decoder.rotary.theta, config.local_rotary.theta) == (1e6, 1e4)
        assert config.decoder.max_positions == 131072


@pytest.mark.parametrize("variant", tiny_models.GEMMA_VARIANTS, ids=str)
def test_what_transformers_writes_says_which_layers_slide(variant):
    config = variant.config().to_dict()
    read = read_gemma_config(config | {"architectures": [f"{variant.family}ForCausalLM"]})
    assert read.decoder.windows == tuple(
        config["sliding_window"] if kind == SLIDING else None for kind in config["layer_types"]
    )


def test_null_caps_of_gemma2_are_none_and_no_default():
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    config = read_gemma_config(GEMMA2 | caps)
    assert (config.decoder.attention_softcap, config.logit_softcap) == (None, None)


def refusal(**changes) -> list[str]:
    with pytest.raises(ModelLoadError) as error:
        read_gemma_config(GEMMA3 | changes)
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        ("hidden_activation", "gelu", "gelu_pytorch_tanh"),
        ("use_bidirectional_attention", True, "false: each token sees those before"),
        ("final_logit_softcapping", 0, "a number above 0, or null"),
        ("query_pre_attn_scalar", None, "a number above 0"),
        ("query_pre_attn_scalar", "256", "a number above 0"),
        ("sliding_window_pattern", 0, "a whole number above 0"),
        ("num_hidden_layers", None, "a whole number above 0"),
        ("layer_types", [FULL], "7 of full_attention or sliding_attention"),
    ],
)
def test_values_that_cannot_be_are_refused(key, value, valid):
    assert refusal(**{key: value}) == [
        f"unsupported {key} {value!r} (the model's config)",
        f"  valid: {valid}",
    ]


def test_a_family_that_is_none_of_gemmas_is_refused():
    first, *_ = refusal(architectures=["Gemma4ForCausalLM"])
    assert first == "unknown architecture 'Gemma4ForCausalLM' (architectures in the model's config)"
