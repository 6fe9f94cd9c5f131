"""What a checkpoint that does not fit is told, and what is loaded from one that does."""

from __future__ import annotations

import logging

import pytest
import torch

import tiny_models
from octavo.errors import CapacityError, ModelLoadError
from octavo.execution.loader import load_parameters
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint
from octavo_plugins.architectures.llama import Llama
from simple_ops import SimpleAttention, SimpleOps

VARIANT = tiny_models.variant_named("Llama-2")
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def checkpoint() -> MemoryCheckpoint:
    reference = tiny_models.reference_model(VARIANT)
    config = reference.config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
    return MemoryCheckpoint(config, reference.state_dict())


def make(checkpoint: MemoryCheckpoint) -> Llama:
    return Llama(checkpoint.config, SimpleOps(), SimpleAttention())


def test_fused_parameters_are_joined_in_the_order_of_their_sources(checkpoint):
    model = make(checkpoint)
    load_parameters(model, checkpoint)
    names = [f"model.layers.2.self_attn.{part}_proj.weight" for part in "qkv"]
    expected = torch.cat([checkpoint.tensors[name] for name in names])
    assert torch.equal(model.weights["layers.2.qkv"], expected)


def test_B141_missing_and_misshapen_tensors_are_all_named(checkpoint, caplog):
    checkpoint.tensors["foo"] = checkpoint.tensors.pop(Q_PROJ)
    checkpoint.tensors["model.norm.weight"] = torch.ones(65)
    checkpoint.tensors["model.layers.0.mlp.up_proj.weight"] = torch.ones(64, 96)
    model = make(checkpoint)
    with pytest.raises(ModelLoadError) as error:
        load_parameters(model, checkpoint)
    assert str(error.value).splitlines() == [
        "the tensors do not fit the config (in memory)",
        "  model.layers.0.mlp.up_proj.weight is [64, 96], not [96, 64]",
        f"  missing: {Q_PROJ}",
        "  model.norm.weight is [65], not [64]",
        "  unexpected: foo",
    ]
    assert model.weights == {}
    assert caplog.records == []


def test_B141_unexpected_tensors_are_one_warning(checkpoint, caplog):
    checkpoint.tensors["foo"] = torch.ones(3)
    checkpoint.tensors["bar.weight"] = torch.ones(3)
    load_parameters(make(checkpoint), checkpoint)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "2 tensors are not used by this architecture (in memory): foo, bar.weight"
    )


def test_B141_many_unexpected_tensors_are_counted(checkpoint, caplog):
    checkpoint.tensors |= {f"vision.{i}": torch.ones(1) for i in range(23)}
    load_parameters(make(checkpoint), checkpoint)
    (record,) = caplog.records
    assert record.getMessage().startswith("23 tensors")
    assert record.getMessage().endswith("vision.19 and 3 more")


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "rope_freqs.weight"]
)
def test_B141_known_skips_are_silent(checkpoint, caplog, name):
    checkpoint.tensors[name] = torch.ones(8)
    load_parameters(make(checkpoint), checkpoint)
    assert caplog.records == []


def test_a_second_copy_of_a_tied_head_is_silent(checkpoint, caplog):
    checkpoint.config["tie_word_embeddings"] = True
    model = make(checkpoint)
    load_parameters(model, checkpoint)
    assert caplog.records == []
    assert "head" not in model.weights


def test_a_head_that_is_not_tied_must_be_there(checkpoint):
    del checkpoint.tensors["lm_head.weight"]
    with pytest.raises(ModelLoadError, match=r"missing: lm_head\.weight"):
        load_parameters(make(checkpoint), checkpoint)


def test_biases_that_the_config_does_not_mention_are_loaded_where_present(checkpoint):
    del checkpoint.config["attention_bias"]
    bare = make(checkpoint)
    load_parameters(bare, checkpoint)
    assert "layers.0.qkv_bias" not in bare.weights
    for part, size in (("q", 64), ("k", 64), ("v", 64)):
        checkpoint.tensors[f"model.layers.0.self_attn.{part}_proj.bias"] = torch.ones(size)
    biased = make(checkpoint)
    load_parameters(biased, checkpoint)
    assert biased.weights["layers.0.qkv_bias"].shape == (192,)
    assert "layers.0.output_bias" not in biased.weights


def test_a_fused_bias_of_which_a_part_is_missing_is_refused(checkpoint):
    del checkpoint.config["attention_bias"]
    checkpoint.tensors["model.layers.0.self_attn.q_proj.bias"] = torch.ones(64)
    with pytest.raises(ModelLoadError) as error:
        load_parameters(make(checkpoint), checkpoint)
    assert [fact.rsplit(".", 2)[-2] for fact in error.value.facts] == ["k_proj", "v_proj"]


def test_progress_ends_at_the_bytes_of_all_tensors(checkpoint):
    calls = []
    load_parameters(make(checkpoint), checkpoint, lambda *call: calls.append(call))
    done = [done_bytes for _, done_bytes, _ in calls]
    total = sum(tensor.numel() * 4 for tensor in checkpoint.tensors.values())
    assert done == sorted(done)
    assert calls[-1] == ("loading weights", total, total)
    assert {total_bytes for _, _, total_bytes in calls} == {total}


@pytest.mark.parametrize("bytes_per_weight", [None, 2])
def test_nothing_is_packed_where_the_weights_would_not_fit(checkpoint, bytes_per_weight):
    model = make(checkpoint)
    model.ops.bytes_per_weight = bytes_per_weight
    size = sum(tensor.numel() for tensor in checkpoint.tensors.values()) * (bytes_per_weight or 4)
    with pytest.raises(CapacityError, match="the weights do not fit into memory"):
        load_parameters(model, checkpoint, available_bytes=size - 1)
    assert model.weights == {}
    load_parameters(model, checkpoint, available_bytes=size)


def test_a_norm_that_is_no_number_is_named(checkpoint):
    name = "model.layers.1.post_attention_layernorm.weight"
    checkpoint.tensors[name] = checkpoint.tensors[name].clone()
    checkpoint.tensors[name][3] = torch.inf

    with pytest.raises(ModelLoadError, match=f"the tensor {name} holds weights that are NaN or"):
        load_parameters(make(checkpoint), checkpoint)
