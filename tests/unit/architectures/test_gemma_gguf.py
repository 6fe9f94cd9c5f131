"""Gemmas that went through a GGUF file, as llama.cpp's converter writes it, keep their logits."""

from __future__ import annotations

import copy

import gguf
import numpy as np
import pytest
import torch

import tiny_gguf
import tiny_models
from octavo.errors import ModelLoadError
from octavo.execution.loader import load_parameters
from octavo.testing.tensors.hand_runner import HandRunner
from octavo_plugins.architectures.gemma import Gemma
from octavo_plugins.attention.cpu_attention import CpuAttention
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.cpu_ops import CpuOps
from octavo_plugins.ops.cpu_options import CpuOpsOptions
from octavo_plugins.ops.torch_ops import TorchOps
from octavo_plugins.weights.gguf_format import GgufFormat
from tiny_models import FULL, SLIDING, Variant

# long enough that windows of 8 hide most of it
PROMPT = [(5 * i + i * i // 7) % 93 + 3 for i in range(40)]
#: what the files say of scores' scale is the size of a head
OF_FILE = {"sliding_window": 8, "head_dim": 32, "query_pre_attn_scalar": 32}
GEMMA3 = Variant("Gemma3-gguf", "Gemma3", options={**OF_FILE, "num_hidden_layers": 7})
SCALED = Variant(
    "Gemma3-gguf-linear",
    "Gemma3",
    {
        FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
        SLIDING: {"rope_type": "default", "rope_theta": 500.0},
    },
    {**OF_FILE, "num_hidden_layers": 7, "final_logit_softcapping": 3.0},
)
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 4.0}
GEMMA2 = Variant("Gemma2-gguf", "Gemma2", options={**OF_FILE, **CAPS})
COMPONENTS = {
    "torch": lambda: (TorchOps(), TorchAttention()),
    "cpu": lambda: (CpuOps(CpuOpsOptions(mode="exact")), CpuAttention()),
}


def load(path, components="torch") -> Gemma:
    checkpoint = GgufFormat().open(path)
    model = Gemma(checkpoint.config, *COMPONENTS[components]())
    load_parameters(model, checkpoint)
    checkpoint.close()
    return model


@torch.no_grad()
def assert_same_logits(path, reference, components) -> None:
    model = load(path, components)
    (logits,) = HandRunner(model).run([(0, PROMPT)])
    expected = reference(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("components", COMPONENTS)
@pytest.mark.parametrize("variant", [GEMMA3, SCALED, GEMMA2], ids=str)
def test_a_round_trip_through_gguf_keeps_the_logits(variant, components, tmp_path):
    reference = tiny_models.reference_model(variant)
    path = tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf")
    assert_same_logits(path, reference, components)


@pytest.mark.parametrize("block_type", ["Q8_0", "Q5_0"])
def test_a_quantised_file_has_the_logits_of_its_decoded_weights(block_type, tmp_path):
    reference = copy.deepcopy(tiny_models.reference_model(GEMMA3))
    path = tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf", block_type)
    assert_same_logits(path, reference, "cpu")


def test_scaling_of_positions_does_not_stretch_the_context(tmp_path):
    reference = tiny_models.reference_model(SCALED)
    model = load(tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf"))
    assert model.max_positions == reference.config.max_position_embeddings
    assert model.shape.windows == (8, 8, 8, 8, 8, None, 8)


def write(path, architecture: str, layers: int, norm: np.ndarray, **numbers: int):
    """Write the keys of a Gemma of 128 hidden dimensions, and two tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(128)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_layer_norm_rms_eps(1e-6)
    for key, value in numbers.items():
        writer.add_uint32(f"{architecture}.attention.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((8, 128), np.float32))
    writer.add_tensor("output_norm.weight", norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFormat().open(path)


@pytest.mark.parametrize(
    ("architecture", "layers", "scalar"),
    [("gemma3", 26, 32), ("gemma3", 62, 64), ("gemma2", 26, 32), ("gemma2", 46, 64)],
)
def test_the_largest_of_a_family_scales_scores_by_its_width(tmp_path, architecture, layers, scalar):
    ones = np.ones(128, np.float32)
    config = write(tmp_path / "one.gguf", architecture, layers, ones, sliding_window=16).config
    caps = (50.0, 30.0) if architecture == "gemma2" else (None, None)
    assert config["query_pre_attn_scalar"] == scalar
    assert (config["attn_logit_softcapping"], config["final_logit_softcapping"]) == caps
    assert config["hidden_activation"] == "gelu_pytorch_tanh"


def test_the_pattern_may_be_a_number(tmp_path):
    ones = np.ones(128, np.float32)
    numbers = {"sliding_window": 16, "sliding_window_pattern": 2}
    config = write(tmp_path / "one.gguf", "gemma3", 4, ones, **numbers).config
    assert config["layer_types"] == [SLIDING, FULL, SLIDING, FULL]


def test_norms_have_no_one_added_and_are_f32(tmp_path):
    halves = np.full(128, 1.5, np.float32)
    checkpoint = write(tmp_path / "one.gguf", "gemma3", 1, halves)
    assert (checkpoint.blocks("model.norm.weight").data.view(np.float32) == 0.5).all()
    checkpoint = write(tmp_path / "two.gguf", "gemma3", 1, halves.astype(np.float16))
    with pytest.raises(ModelLoadError, match=r"'model\.norm\.weight' is a norm of type F16"):
        checkpoint.blocks("model.norm.weight")
