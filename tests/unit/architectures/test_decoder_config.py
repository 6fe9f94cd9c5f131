"""Configs as transformers 5 writes them and as older files have them, and what is refused."""

from __future__ import annotations

import pytest

import tiny_models
from octavo.errors import ModelLoadError
from octavo_plugins.architectures.decoder_config import DecoderConfig, read_decoder_config

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


def read(**changes) -> DecoderConfig:
    return read_decoder_config(LLAMA | changes)


def older(config: dict) -> dict:
    """Return a config as transformers 4 would have written it."""
    config = dict(config)
    scaling = dict(config.pop("rope_parameters"))
    config["rope_theta"] = scaling.pop("rope_theta")
    kind = scaling.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **scaling}
    return config


@pytest.mark.parametrize("variant", tiny_models.VARIANTS, ids=str)
def test_both_spellings_of_rotary_embedding_mean_the_same(variant):
    config = variant.config().to_dict()
    family = variant.family.replace("Ministral", "Mistral")
    config["architectures"] = [f"{family}ForCausalLM"]
    new, old = read_decoder_config(config), read_decoder_config(older(config))
    old.rotary.scaling.pop("type", None)
    scaling = {k: v for k, v in new.rotary.scaling.items() if k != "rope_theta"}
    assert old.rotary.scaling == scaling
    assert old.rotary.theta == new.rotary.theta
    assert old.max_positions == new.max_positions
    assert (old.windows, old.has_rotary) == (new.windows, new.has_rotary)


def test_a_bare_llama_config_has_the_defaults_of_transformers():
    config = read()
    assert (config.num_kv_heads, config.head_dim, config.rotary.theta) == (4, 16, 10_000.0)
    assert (config.is_tied, config.norm_eps) == (False, 1e-6)
    assert config.windows == (None,) * 4
    assert config.has_rotary == (True,) * 4


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("Mistral", {"num_kv_heads": 8, "windows": (4096,) * 4}),
        ("Qwen2", {"num_kv_heads": 32, "qkv_bias": "yes", "output_bias": "no"}),
        ("Qwen3", {"head_dim": 128, "has_qk_norm": True, "windows": (None,) * 4}),
        ("SmolLM3", {"is_tied": True, "has_rotary": (True, True, True, False)}),
    ],
)
def test_each_family_has_its_own_defaults(family, expected):
    config = read(architectures=[f"{family}ForCausalLM"], num_attention_heads=32)
    assert {key: getattr(config, key) for key in expected} == expected


def test_smollm3_has_its_own_theta():
    config = read(architectures=["SmolLM3ForCausalLM"])
    assert config.rotary.theta == 2_000_000.0


def test_a_llama_ignores_windows_as_transformers_does():
    assert read(sliding_window=8).windows == (None,) * 4


@pytest.mark.parametrize(
    ("rope", "max_positions", "original"),
    [
        ({"rope_type": "default"}, 64, 64),
        ({"rope_type": "dynamic", "factor": 2.5}, 160, 64),
        # llama3 configs state the length after scaling
        (tiny_models.LLAMA3_ROPE, 64, 32),
        # a checkpoint states what yarn and linear scaling reach; some files leave that to us
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256, 64),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}, 64, 16),
        ({"rope_type": "linear", "factor": 4.0, "original_max_position_embeddings": 64}, 256, 64),
        ({"rope_type": "yarn", "factor": 4.0}, 64, 16),
        ({"rope_type": "linear", "factor": 4.0}, 64, 16),
    ],
)
def test_B133_rope_scaling_extends_the_context(rope, max_positions, original):
    config = read(rope_parameters=rope)
    assert config.max_positions == max_positions
    assert config.rotary.original_max_positions == original


def test_yarn_without_a_factor_takes_it_from_the_lengths():
    rope = {"rope_type": "yarn", "original_max_position_embeddings": 16}
    config = read(rope_parameters=rope)
    assert config.rotary.scaling["factor"] == 4.0
    assert config.max_positions == 64


def test_an_original_length_beside_the_rope_parameters_counts_as_in_transformers():
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    config = read(rope_parameters=rope, original_max_position_embeddings=16)
    assert config.rotary.original_max_positions == 16
    rope = {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 32}
    config = read(rope_parameters=rope, original_max_position_embeddings=16)
    assert config.rotary.scaling["original_max_position_embeddings"] == 64


def test_frequency_factors_reach_the_rotary_config():
    assert read(rope_frequency_factors=[1, 2.5]).rotary.frequency_factors == (1.0, 2.5)


def refusal(**changes) -> list[str]:
    with pytest.raises(ModelLoadError) as error:
        read(**changes)
    return str(error.value).splitlines()


def test_an_unknown_activation_is_refused():
    assert refusal(hidden_act="gelu") == [
        "unsupported hidden_act 'gelu' (the model's config)",
        "  valid: silu or swish",
    ]


def test_an_unknown_rope_type_is_refused():
    assert refusal(rope_scaling={"type": "yarm", "factor": 2.0}) == [
        "unknown rope_type 'yarm' (rope_parameters of the model's config)",
        "  did you mean 'yarn'?",
        "  valid: default, linear, dynamic, llama3, yarn",
    ]


def test_rope_scaling_without_its_factor_is_refused():
    assert refusal(rope_scaling={"type": "linear"}) == [
        "bad factor None for rope_type 'linear' (rope_parameters of the model's config)",
        "  valid: a number above 0",
    ]


def test_an_unknown_architecture_is_refused():
    first, second, *_ = refusal(architectures=["LamaForCausalLM"])
    assert first == "unknown architecture 'LamaForCausalLM' (architectures in the model's config)"
    assert second == "  did you mean 'LlamaForCausalLM'?"


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        ("hidden_size", None, "a whole number above 0"),
        ("num_hidden_layers", 0, "a whole number above 0"),
        ("vocab_size", "96", "a whole number above 0"),
        ("num_key_value_heads", 3, "a divisor of 4 attention heads"),
        ("head_dim", 15, "an even number"),
    ],
)
def test_sizes_that_cannot_be_are_refused(key, value, valid):
    assert refusal(**{key: value}) == [
        f"unsupported {key} {value!r} (the model's config)",
        f"  valid: {valid}",
    ]


def test_a_missing_size_is_named():
    config = {key: value for key, value in LLAMA.items() if key != "intermediate_size"}
    with pytest.raises(ModelLoadError, match="unsupported intermediate_size that is missing"):
        read_decoder_config(config)


def test_layer_types_of_another_kind_are_refused():
    lines = refusal(
        architectures=["Qwen2ForCausalLM"],
        num_key_value_heads=4,
        use_sliding_window=True,
        layer_types=["full_attention"] * 3 + ["linear_attention"],
    )
    assert lines[1] == "  valid: 4 of full_attention or sliding_attention"


def test_no_rope_layers_that_are_too_few_are_refused():
    lines = refusal(architectures=["SmolLM3ForCausalLM"], no_rope_layers=[1, 0])
    assert lines[1] == "  valid: a list of 4 zeros and ones"
