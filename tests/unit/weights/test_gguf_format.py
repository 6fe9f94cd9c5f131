"""GGUF models as checkpoints: names, config, row order, splits, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from checkpoints import GgufFile, GgufTensor, f32, llama_gguf
from octavo.errors import ModelLoadError
from octavo_plugins.weights.gguf_format import GgufFormat
from octavo_plugins.weights.gguf_rope import explain_factors

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def as_floats(checkpoint: Any, name: str) -> NDArray[np.float32]:
    blocks = checkpoint.blocks(name)
    assert blocks.block_type == "F32"
    return blocks.data.view(np.float32).reshape(blocks.shape)


def config_of(tmp_path: Path, file: GgufFile) -> dict[str, Any]:
    return dict(GgufFormat().open_config(file.write(tmp_path / "m.gguf")).config)


def test_config_speaks_hugging_face(tmp_path: Path) -> None:
    config = config_of(tmp_path, llama_gguf())
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 48,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }


def test_names_speak_hugging_face(tmp_path: Path) -> None:
    names = GgufFormat().open(llama_gguf().write(tmp_path / "m.gguf")).names()
    layer = [name for name in names if name.startswith("model.layers.1.")]
    assert [name.removeprefix("model.layers.1.") for name in layer] == [
        "input_layernorm.weight",
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
        "post_attention_layernorm.weight",
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
    ]
    assert sorted(set(names) - set(layer))[:2] == [
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
    ]
    assert "model.norm.weight" in names


def interleave(weights: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """What llama.cpp's converter does to query and key rows."""
    rows = weights.reshape(num_heads, 2, len(weights) // num_heads // 2, *weights.shape[1:])
    return rows.swapaxes(1, 2).reshape(weights.shape)


def test_query_and_key_rows_return_to_hugging_faces_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    file = llama_gguf()
    original = {
        "q": rng.normal(size=(32, 32)).astype(np.float32),
        "k": rng.normal(size=(16, 32)).astype(np.float32),
        "q_bias": rng.normal(size=32).astype(np.float32),
        "v": rng.normal(size=(16, 32)).astype(np.float32),
    }
    file.tensors |= {
        "blk.0.attn_q.weight": f32(interleave(original["q"], 4)),
        "blk.0.attn_k.weight": f32(interleave(original["k"], 2)),
        "blk.0.attn_q.bias": f32(interleave(original["q_bias"], 4)),
        "blk.0.attn_v.weight": f32(original["v"]),
    }
    checkpoint = GgufFormat().open(file.write(tmp_path / "m.gguf"))

    prefix = "model.layers.0.self_attn"
    np.testing.assert_array_equal(as_floats(checkpoint, f"{prefix}.q_proj.weight"), original["q"])
    np.testing.assert_array_equal(as_floats(checkpoint, f"{prefix}.k_proj.weight"), original["k"])
    np.testing.assert_array_equal(
        as_floats(checkpoint, f"{prefix}.q_proj.bias"), original["q_bias"]
    )
    np.testing.assert_array_equal(as_floats(checkpoint, f"{prefix}.v_proj.weight"), original["v"])
    assert checkpoint.config["attention_bias"] is True


def test_quantised_query_rows_move_as_whole_blocks(tmp_path: Path) -> None:
    file = llama_gguf()
    rows = np.random.default_rng(1).integers(0, 256, (32, 34), dtype=np.uint8)
    file.tensors["blk.0.attn_q.weight"] = GgufTensor((32, 32), interleave(rows, 4), "Q8_0")
    checkpoint = GgufFormat().open(file.write(tmp_path / "m.gguf"))

    blocks = checkpoint.blocks("model.layers.0.self_attn.q_proj.weight")

    assert (blocks.block_type, blocks.shape) == ("Q8_0", (32, 32))
    np.testing.assert_array_equal(blocks.data, rows)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_other_architectures_keep_the_order_of_the_file(tmp_path: Path, architecture: str) -> None:
    file = llama_gguf(architecture)
    checkpoint = GgufFormat().open(file.write(tmp_path / "m.gguf"))
    blocks = checkpoint.blocks("model.layers.0.self_attn.q_proj.weight")
    np.testing.assert_array_equal(blocks.data, file.tensors["blk.0.attn_q.weight"].data)
    assert checkpoint.config["model_type"] == architecture


def test_blocks_are_views_that_outlive_the_checkpoint(tmp_path: Path) -> None:
    file = llama_gguf()
    checkpoint = GgufFormat().open(file.write(tmp_path / "m.gguf"))
    blocks = checkpoint.blocks("model.embed_tokens.weight")
    assert blocks.data.base is not None
    checkpoint.close()
    checkpoint.close()
    np.testing.assert_array_equal(blocks.data, file.tensors["token_embd.weight"].data)
    with pytest.raises(ModelLoadError, match="was closed"):
        checkpoint.blocks("model.embed_tokens.weight")


def test_an_output_tensor_means_untied_embeddings(tmp_path: Path) -> None:
    file = llama_gguf()
    file.tensors["output.weight"] = f32(np.ones((48, 32)))
    checkpoint = GgufFormat().open(file.write(tmp_path / "m.gguf"))
    assert checkpoint.config["tie_word_embeddings"] is False
    assert checkpoint.blocks("lm_head.weight").shape == (48, 32)


def test_smollm3_has_layers_without_rotary_embedding(tmp_path: Path) -> None:
    config = config_of(tmp_path, llama_gguf("smollm3", num_layers=5))
    assert config["no_rope_layers"] == [1, 1, 1, 0, 1]


def test_a_window_makes_llama_a_mistral(tmp_path: Path) -> None:
    file = llama_gguf()
    file.metadata["llama.attention.sliding_window"] = 8
    config = config_of(tmp_path, file)
    assert config["architectures"] == ["MistralForCausalLM"]
    assert config["sliding_window"] == 8


def test_a_window_pattern_becomes_layer_types(tmp_path: Path) -> None:
    file = llama_gguf("qwen2")
    file.metadata["qwen2.attention.sliding_window"] = 8
    file.metadata["qwen2.attention.sliding_window_pattern"] = [True, False]
    config = config_of(tmp_path, file)
    assert config["layer_types"] == ["sliding_attention", "full_attention"]


def test_B133_yarn_extends_the_context(tmp_path: Path) -> None:
    file = llama_gguf()
    file.metadata |= {
        "llama.rope.freq_base": 500000.0,
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 64,
        "llama.rope.scaling.yarn_beta_fast": 24.0,
    }
    config = config_of(tmp_path, file)
    assert config["max_position_embeddings"] == 256
    assert config["rope_theta"] == 500000.0
    assert config["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 24.0,
    }
    assert config["rope_parameters"] == {**config["rope_scaling"], "rope_theta": 500000.0}


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
        {"llama.rope.scaling.factor": 2.0},
        {"llama.rope.scale_linear": 2.0},
    ],
)
def test_B133_linear_scaling_extends_the_context(tmp_path: Path, metadata: dict[str, Any]) -> None:
    file = llama_gguf()
    file.metadata |= metadata
    config = config_of(tmp_path, file)
    assert config["max_position_embeddings"] == 128
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}


def llama3_factors(head_dim: int, theta: float, scaling: dict[str, float]) -> NDArray[np.float32]:
    """The divisors that llama.cpp's converter writes, step by step as it does."""
    frequencies = 1.0 / theta ** (np.arange(0, head_dim, 2) / head_dim)
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    factors = []
    for wavelength in 2 * np.pi / frequencies:
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(scaling["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.parametrize(("high", "original"), [(4.0, 8192), (8.0, 4096)])
def test_B133_rope_freqs_become_llama3_scaling(
    tmp_path: Path, factor: float, high: float, original: int
) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
    file = llama_gguf(head_dim=64)
    file.metadata["llama.rope.freq_base"] = 500000.0
    file.tensors["rope_freqs.weight"] = f32(llama3_factors(64, 500000.0, scaling))
    checkpoint = GgufFormat().open(file.write(tmp_path / "m.gguf"))
    assert checkpoint.config["rope_scaling"] == scaling
    assert "rope_frequency_factors" not in checkpoint.config
    assert "rope_freqs.weight" not in checkpoint.names()


def test_B133_rope_freqs_that_nothing_explains_are_kept_as_they_are(tmp_path: Path) -> None:
    factors = np.array([1.0, 1.5, 7.0, 2.0], np.float32)
    file = llama_gguf()
    file.tensors["rope_freqs.weight"] = f32(factors)
    config = config_of(tmp_path, file)
    assert config["rope_frequency_factors"] == factors.tolist()
    assert config["rope_scaling"] is None


def test_few_blended_frequencies_are_not_guessed_at() -> None:
    assert explain_factors(np.array([1, 1, 8, 8], np.float32), 10000.0, 8) is None
    assert explain_factors(np.ones(4, np.float32), 10000.0, 8) is None


def test_special_ids_are_part_of_both_configs(tmp_path: Path) -> None:
    file = llama_gguf()
    file.metadata |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(48)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "general.sampling.temp": 0.6,
        "general.sampling.top_k": 20,
    }
    description = GgufFormat().open_config(file.write(tmp_path / "m.gguf"))
    assert description.config["eos_token_id"] == 2
    assert description.generation_config == {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "temperature": 0.6,
        "top_k": 20,
    }
    assert description.tokenizer_path == tmp_path / "m.gguf"


REFUSED = {
    "unknown architecture": (
        {"general.architecture": "lama"},
        (
            "unknown architecture 'lama' (GGUF file '{path}', 'general.architecture')\n"
            "  did you mean 'llama'?\n"
            "  known are llama, qwen2, qwen3, gemma2, gemma3, smollm3\n"
            "  a folder with safetensors may work where its GGUF does not"
        ),
    ),
    "missing key": (
        {"llama.block_count": None},
        "GGUF file '{path}': 'llama.block_count' is None\n  it must be a number above 0",
    ),
    "experts": (
        {"llama.expert_count": 8},
        (
            "GGUF file '{path}': 'llama.expert_count' is 8\n"
            "  mixtures of experts are not supported in this architecture"
        ),
    ),
    "scaling": (
        {"llama.rope.scaling.type": "longrope"},
        (
            "GGUF file '{path}': rope scaling 'longrope' is not supported here\n"
            "  'llama.rope.scaling.type' may be none, linear or yarn"
        ),
    ),
    "value length": (
        {"llama.attention.value_length": 16},
        (
            "GGUF file '{path}': 'llama.attention.value_length' is 16\n"
            "  keys are 8 wide, values must be too"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused(tmp_path: Path, case: str) -> None:
    changes, message = REFUSED[case]
    file = llama_gguf()
    file.metadata |= changes
    file.metadata = {key: value for key, value in file.metadata.items() if value is not None}
    path = file.write(tmp_path / "m.gguf")
    with pytest.raises(ModelLoadError) as caught:
        GgufFormat().open(path)
    assert str(caught.value) == message.format(path=path)


def test_a_block_type_without_decoder_is_named(tmp_path: Path) -> None:
    file = llama_gguf(hidden_size=256, head_dim=64)
    file.tensors["blk.0.ffn_down.weight"] = GgufTensor(
        (256, 256), np.zeros((256, 84), np.uint8), "Q2_K"
    )
    checkpoint = GgufFormat().open(file.write(tmp_path / "m.gguf"))
    with pytest.raises(ModelLoadError) as caught:
        checkpoint.blocks("model.layers.0.mlp.down_proj.weight")
    message = str(caught.value)
    assert "'model.layers.0.mlp.down_proj.weight' is of type Q2_K" in message
    assert "tensor 'blk.0.ffn_down.weight'" in message
    assert "decodable are F32, F16, BF16, Q8_0" in message


def test_a_tensor_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = llama_gguf().write(tmp_path / "m.gguf")
    with pytest.raises(ModelLoadError) as caught:
        GgufFormat().open(path).blocks("model.norm.weights")
    assert str(caught.value) == (
        f"there is no tensor 'model.norm.weights' in GGUF model '{path}'\n"
        "  did you mean 'model.norm.weight'?\n"
        "  it has 20 tensors"
    )


def split(tmp_path: Path, *, count: int = 3) -> list[Path]:
    """Write the tiny model as several files."""
    whole = llama_gguf()
    names = list(whole.tensors)
    paths = []
    for number in range(count):
        metadata = {"split.no": number, "split.count": count, "split.tensors.count": len(names)}
        part = GgufFile(
            {**metadata, **(whole.metadata if number == 0 else {})},
            {name: whole.tensors[name] for name in names[number::count]},
        )
        paths.append(part.write(tmp_path / f"m-{number + 1:05}-of-{count:05}.gguf"))
    return paths


def test_split_files_open_by_any_of_their_names(tmp_path: Path) -> None:
    whole = GgufFormat().open(llama_gguf().write(tmp_path / "whole.gguf"))
    for path in split(tmp_path):
        checkpoint = GgufFormat().open(path)
        assert sorted(checkpoint.names()) == sorted(whole.names())
        assert checkpoint.config == whole.config
        for name in whole.names():
            np.testing.assert_array_equal(checkpoint.blocks(name).data, whole.blocks(name).data)


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelLoadError) as caught:
        GgufFormat().open(paths[0])
    assert str(caught.value) == (
        f"GGUF model '{paths[0]}' is incomplete: 1 of its 3 files are missing\n"
        "  missing are m-00002-of-00003.gguf"
    )


def test_a_split_under_another_name_is_refused(tmp_path: Path) -> None:
    paths = split(tmp_path)
    renamed = paths[0].rename(tmp_path / "model.gguf")
    with pytest.raises(ModelLoadError, match=r"by its metadata .* file 1 of 3"):
        GgufFormat().open(renamed)


def test_why_not_tells_what_the_path_is_instead(tmp_path: Path) -> None:
    path = llama_gguf().write(tmp_path / "m.gguf")
    assert GgufFormat().why_not(path) == []
    assert GgufFormat().why_not(tmp_path) == [f"'{tmp_path}' is no file"]
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"{}")
    assert GgufFormat().why_not(other) == [f"'{other}' does not start like a GGUF file"]
