"""Made-up weights: the right tensors, and the same noise each time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import transformers

from checkpoints import llama_gguf
from hybrid_twin import FULL, LINEAR, SLIDING, Hybrid
from octavo.errors import ModelLoadError
from octavo_plugins.weights.dummy import DummyFormat
from octavo_plugins.weights.gguf_format import GgufFormat
from tiny_models import CONFIG_CLASSES

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}


UNASKED = "it makes up weights, so that it must be asked for by name"


def write_config(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("Llama", {}),
        ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("Mistral", {"head_dim": 16}),
        ("Qwen2", {}),
        ("Qwen3", {"head_dim": 16}),
        ("SmolLM3", {"tie_word_embeddings": False}),
        ("Gemma2", {"head_dim": 16}),
        ("Gemma3", {"head_dim": 16, "tie_word_embeddings": False}),
    ],
)
def test_tensors_are_those_of_transformers(
    tmp_path: Path, family: str, options: dict[str, Any]
) -> None:
    name = CONFIG_CLASSES.get(family, f"{family}Config")
    config = getattr(transformers, name)(**SIZES, **options)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    config.architectures = [f"{family}ForCausalLM"]
    config.save_pretrained(tmp_path)
    checkpoint = DummyFormat().open(tmp_path)

    # a tied head is one tensor, under the name of the embedding
    expected = {
        name: tuple(tensor.shape)
        for name, tensor in model.state_dict().items()
        if not (config.tie_word_embeddings and name == "lm_head.weight")
    }
    assert {name: checkpoint.blocks(name).shape for name in checkpoint.names()} == expected


def test_tensors_of_a_hybrid_are_those_of_its_twin(tmp_path: Path) -> None:
    hybrid = Hybrid((LINEAR, SLIDING, LINEAR, FULL))
    checkpoint = DummyFormat().open(write_config(tmp_path, hybrid.config))
    expected = {name: tuple(tensor.shape) for name, tensor in hybrid.tensors.items()}
    assert {name: checkpoint.blocks(name).shape for name in checkpoint.names()} == expected
    write_config(tmp_path, {**hybrid.config, "layer_types": None})
    with pytest.raises(ModelLoadError, match="lacks layer_types"):
        DummyFormat().open(tmp_path)


def test_norms_that_are_stored_less_one_are_zeros(tmp_path: Path) -> None:
    folder = write_config(tmp_path, {**SIZES, "architectures": ["Gemma3ForCausalLM"]})
    norm = DummyFormat().open(folder).blocks("model.norm.weight").data.view(np.float32)
    assert norm.tolist() == [[0.0] * 32]


def test_noise_depends_on_the_name_alone(tmp_path: Path) -> None:
    folder = write_config(tmp_path, {**SIZES, "architectures": ["LlamaForCausalLM"]})
    first, second = DummyFormat().open(folder), DummyFormat().open(folder)
    q = first.blocks("model.layers.0.self_attn.q_proj.weight").data
    np.testing.assert_array_equal(second.blocks("model.layers.0.self_attn.q_proj.weight").data, q)
    assert (second.blocks("model.layers.0.self_attn.o_proj.weight").data != q).any()
    norm = first.blocks("model.norm.weight").data.view(np.float32)
    assert norm.tolist() == [[1.0] * 32]
    assert abs(float(q.view(np.float32).std()) - 0.02) < 0.002


def test_the_config_may_come_from_a_gguf_file(tmp_path: Path) -> None:
    path = llama_gguf().write(tmp_path / "m.gguf")
    assert DummyFormat().why_not(path) == [UNASKED]
    checkpoint = DummyFormat().open(path)
    assert sorted(checkpoint.names()) == sorted(GgufFormat().open(path).names())
    checkpoint.close()
    checkpoint.close()


def test_what_cannot_be_made_up_is_named(tmp_path: Path) -> None:
    assert DummyFormat().why_not(tmp_path / "nothing") == [
        UNASKED,
        f"'{tmp_path / 'nothing'}' is neither a GGUF file nor a folder with a config.json",
    ]
    folder = write_config(tmp_path, {**SIZES, "architectures": ["MambaForCausalLM"]})
    with pytest.raises(ModelLoadError, match="no weights can be made up for 'MambaForCausalLM'"):
        DummyFormat().open(folder)
    config = {key: value for key, value in SIZES.items() if key != "hidden_size"}
    write_config(folder, {**config, "architectures": ["LlamaForCausalLM"]})
    with pytest.raises(ModelLoadError, match="lacks hidden_size"):
        DummyFormat().open(folder)
