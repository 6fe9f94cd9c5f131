"""A recorded step, replayed with other counts, lengths, tables and rows, has the same bits."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING
from unittest import mock

import pytest
import torch

import tiny_models
from families import load_model
from octavo.execution.recording import (
    Record,
    RecordedCall,
    RecordingAttention,
    RecordingOps,
    recording,
)
from octavo.interfaces.attention import Attention
from octavo.interfaces.ops import OpSet
from octavo.testing.tensors.hand_runner import HandRunner
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from simple_ops import SimpleAttention, SimpleOps

if TYPE_CHECKING:
    from octavo.interfaces.architecture import Architecture

FAMILIES = {
    "Llama": "Llama-3.2",
    "Llama with biases": "Llama-biases",
    "Mistral": "Mistral-window",
    "Qwen2": "Qwen2-layer-types",
    "Qwen3": "Qwen3-full",
    "SmolLM3": "SmolLM3-window",
    "Gemma2": "Gemma2-capped",
    "Gemma3": "Gemma3-linear",
}
PARTS = {"simple": (SimpleOps, SimpleAttention), "torch": (TorchOps, TorchAttention)}
PROMPT = list(range(3, 43))
#: chunks of sequences per step; the first is recorded
STEPS = [
    [(0, PROMPT[:5]), (2, PROMPT[:1])],
    [(1, PROMPT[:30]), (0, PROMPT[5:6]), (2, PROMPT[1:20]), (3, PROMPT[7:9])],
    [(0, PROMPT[6:7])],
    [(2, PROMPT[20:21]), (1, PROMPT[30:31]), (0, PROMPT[7:8]), (3, PROMPT[9:10])],
]


def load(variant_name: str, parts: tuple[type, type]) -> Architecture:
    reference = tiny_models.reference_model(tiny_models.variant_named(variant_name))
    config = reference.config.to_dict() | {"architectures": [type(reference).__name__]}
    tensors = reference.state_dict()
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    make_ops, make_attention = parts
    return load_model(MemoryCheckpoint(config, tensors), make_ops(), make_attention())


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("variant_name", FAMILIES.values(), ids=FAMILIES)
def test_a_replay_has_the_same_bits_as_direct_execution(variant_name, parts):
    replayed, direct = (HandRunner(load(variant_name, parts)) for _ in range(2))
    steps = replayed.run_recorded(STEPS)
    for chunks, logits in zip(STEPS, steps, strict=True):
        for ours, theirs in zip(logits, direct.run(chunks), strict=True):
            assert torch.equal(ours, theirs)
    assert torch.equal(replayed.step_buffers.hidden, direct.step_buffers.hidden)


def test_outside_the_block_nothing_is_recorded_and_the_own_ops_are_back():
    model = load("Llama-2", PARTS["torch"])
    ops, attention = model.ops, model.attention
    runner = HandRunner(model)
    with recording(model) as record:
        runner.run(STEPS[0])
    num_calls = len(record.calls)
    assert (model.ops, model.attention) == (ops, attention)
    runner.run(STEPS[1])
    assert len(record.calls) == num_calls > 0


def test_the_own_ops_are_back_after_an_error():
    model = load("Llama-2", PARTS["torch"])
    ops = model.ops
    with pytest.raises(RuntimeError, match="mid-step"), recording(model):
        raise RuntimeError("mid-step")
    assert model.ops is ops


OPERATIONS = [name for name in vars(OpSet) if inspect.isfunction(vars(OpSet)[name])]
#: what makes an error, or an object, touches no buffer
NO_OPERATIONS = {"__init__", "unsupported"}


@pytest.mark.parametrize("name", sorted({*OPERATIONS} - NO_OPERATIONS))
def test_ops_that_write_are_recorded_and_ops_that_return_are_handed_through(name):
    check_method(RecordingOps, OpSet, name)


@pytest.mark.parametrize("name", sorted({*Attention.__abstractmethods__, "native_call"}))
def test_attention_that_writes_is_recorded_and_the_rest_handed_through(name):
    check_method(RecordingAttention, Attention, name)


def check_method(recorder: type, kind: type, name: str) -> None:
    inner, record = mock.create_autospec(kind, instance=True), Record()
    inner.options = inner.collective = None
    inner.block_types, inner.activation_dtype = frozenset({"F32"}), "bfloat16"
    method = getattr(recorder(inner, record), name)
    signature = inspect.signature(method)
    args = [mock.sentinel.argument] * len(signature.parameters)
    result = method(*args)
    getattr(inner, name).assert_called_once_with(*args)
    if signature.return_annotation == "None":
        assert record.calls == [RecordedCall(inner, name, tuple(args))]
    else:
        assert result is getattr(inner, name).return_value
        assert record.calls == []


def test_a_recorder_shows_the_facts_of_its_op_set():
    ops = RecordingOps(SimpleOps(), Record())
    assert ops.block_types == {"F32"}
    assert ops.activation_dtype == "float32"
