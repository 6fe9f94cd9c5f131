"""B142: which layers attend to a window is the config's business, layer by layer."""

from __future__ import annotations

import pytest
import torch

import tiny_models
from families import load_model
from octavo.execution.loader import load_parameters
from octavo.testing.tensors.hand_runner import HandRunner
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint
from octavo_plugins.architectures.llama import Llama
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from octavo_plugins.weights.safetensors_format import SafetensorsFormat

PROMPT = [(11 * i) % 93 + 3 for i in range(40)]
#: which of the three layers of a variant see no further than 8 positions
WINDOWS = {
    "Mistral-full": (None, None, None),
    "Mistral-window": (8, 8, 8),
    "Ministral-layer-types": (None, 8, None),
    "Ministral-all-full": (None, None, None),
    "Qwen2-full": (None, None, None),
    "Qwen2-upper-layers": (None, 8, 8),
    "Qwen2-layer-types": (8, None, 8),
    "Qwen2-all-full": (None, None, None),
    "Qwen2-window-off": (None, None, None),
    "Qwen3-upper-layers": (None, None, 8),
    "SmolLM3-window": (None, 8, None),
    "Gemma3-pattern": (8, None, 8),
    "Gemma3-layer-types": (None, 8, 8),
    "Gemma3-all-full": (None, None, None),
    "Gemma3-all-local": (8, 8, 8),
    "Gemma2-capped": (8, None, 8),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_B142_only_the_layers_that_slide_have_a_window(name, tmp_path):
    variant = tiny_models.variant_named(name)
    checkpoint = SafetensorsFormat().open(tiny_models.save(variant, tmp_path))
    model = load_model(checkpoint, TorchOps(), TorchAttention())
    assert model.shape.windows == WINDOWS[name]
    (logits,) = HandRunner(model).run([(0, PROMPT)])
    expected = tiny_models.reference_logits(variant, PROMPT)
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=0)


def test_B142_the_comparison_would_notice_a_wrong_window():
    variant = tiny_models.variant_named("Qwen2-all-full")
    reference = tiny_models.reference_model(variant)
    config = reference.config.to_dict() | {
        "architectures": ["Qwen2ForCausalLM"],
        "layer_types": ["full_attention", "full_attention", "sliding_attention"],
    }
    checkpoint = MemoryCheckpoint(config, reference.state_dict())
    model = Llama(config, TorchOps(), TorchAttention())
    load_parameters(model, checkpoint)
    (logits,) = HandRunner(model).run([(0, PROMPT)])
    expected = tiny_models.reference_logits(variant, PROMPT)
    torch.testing.assert_close(logits[:8], expected[:8], atol=1e-4, rtol=0)
    assert (logits[8:] - expected[8:]).abs().amax(dim=1).min() > 0.005
