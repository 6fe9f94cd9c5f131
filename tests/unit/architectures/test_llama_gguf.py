"""Models that went through a GGUF file, as llama.cpp's converter writes it, keep their logits."""

from __future__ import annotations

import copy

import pytest
import torch

import tiny_gguf
import tiny_models
from octavo.execution.buffers import StepCapacity
from octavo.execution.loader import load_parameters
from octavo.testing.tensors.hand_runner import HandRunner
from octavo_plugins.architectures.llama import Llama
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from octavo_plugins.weights.gguf_format import GgufFormat
from tiny_models import Variant

PROMPT = [(5 * i + i * i // 7) % 93 + 3 for i in range(40)]
LONG_PROMPT = [(5 * i + i * i // 7) % 93 + 3 for i in range(152)]
LONG = StepCapacity(max_tokens=160, max_rows=160, max_seqs=1, max_blocks=40, block_size=4)
ROUND_TRIPS = (
    "Llama-2",
    "Llama-3.2",
    "Llama-linear",
    "Llama-yarn",
    "Llama-biases",
    "Llama-head-dim",
    "Llama-smollm2",
    "Mistral-full",
    "Qwen2-full",
    "Qwen3-full",
)


def load(path) -> Llama:
    checkpoint = GgufFormat().open(path)
    model = Llama(checkpoint.config, TorchOps(), TorchAttention())
    load_parameters(model, checkpoint)
    checkpoint.close()
    return model


@torch.no_grad()
def assert_same_logits(path, reference) -> None:
    (logits,) = HandRunner(load(path)).run([(0, PROMPT)])
    expected = reference(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_round_trip_through_gguf_keeps_the_logits(name, tmp_path):
    reference = tiny_models.reference_model(tiny_models.variant_named(name))
    assert_same_logits(tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf"), reference)


def test_smollm3_from_gguf_leaves_every_fourth_layer_without_rotary_embedding(tmp_path):
    variant = Variant("SmolLM3-gguf", "SmolLM3", options={"num_hidden_layers": 5})
    reference = tiny_models.reference_model(variant)
    path = tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf")
    assert load(path).shape.has_rotary == (True, True, True, False, True)
    assert_same_logits(path, reference)


@pytest.mark.parametrize("block_type", ["Q8_0", "Q4_0", "Q4_1", "Q5_1"])
@pytest.mark.parametrize("name", ["Llama-2", "Qwen3-full"])
def test_a_quantised_file_has_the_logits_of_its_decoded_weights(name, block_type, tmp_path):
    reference = copy.deepcopy(tiny_models.reference_model(tiny_models.variant_named(name)))
    path = tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf", block_type)
    assert_same_logits(path, reference)


B133 = (
    Variant(
        "Llama-b133-yarn",
        "Llama",
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 5e5,
        },
    ),
    Variant(
        "Llama-b133-freqs",
        "Llama",
        {**tiny_models.LLAMA3_ROPE, "rope_theta": 5e5},
        {"max_position_embeddings": 256},
    ),
)


@pytest.mark.parametrize("variant", B133, ids=str)
def test_B133_a_gguf_with_scaled_rope_serves_positions_beyond_training(variant, tmp_path):
    reference = tiny_models.reference_model(variant)
    model = load(tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf"))
    assert model.max_positions == 256
    (logits,) = HandRunner(model, LONG).run([(0, LONG_PROMPT)])
    expected = tiny_models.reference_logits(variant, LONG_PROMPT)
    assert (logits[150] - expected[150]).abs().max() < 1e-2
