"""Decoders split between ranks: the same logits, the same bits on all ranks, and in a replay."""

from __future__ import annotations

import pytest
import torch

import tiny_models
from families import load_model
from octavo.errors import ConfigError
from octavo.testing.tensors.hand_runner import HandRunner
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint
from octavo_plugins.architectures.llama import Llama
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from simple_ops import SimpleAttention, SimpleOps
from thread_ranks import ThreadCollective, run_ranks

PROMPT = [(7 * i + i * i // 3) % 93 + 3 for i in range(30)]
PARTS = {"simple": (SimpleOps, SimpleAttention), "torch": (TorchOps, TorchAttention)}
CASES = [
    ("Llama-2", 2),
    ("Llama-2", 4),
    ("Llama-biases", 2),
    ("Llama-smollm2", 3),
    ("Mistral-window", 2),
    ("Qwen2-layer-types", 2),
    ("Qwen3-full", 2),
    ("Qwen3-biases", 2),
    ("SmolLM3-list", 2),
    ("Gemma3-pattern", 2),
    ("Gemma2-capped", 2),
    ("Gemma3-untied", 2),
    ("Gemma2-capped", 2),
]
STEPS = [
    [(0, PROMPT[:5]), (2, PROMPT[:1])],
    [(1, PROMPT[:20]), (0, PROMPT[5:6]), (2, PROMPT[1:20]), (3, PROMPT[7:9])],
    [(0, PROMPT[6:7])],
]


def checkpoint_of(variant_name: str) -> MemoryCheckpoint:
    reference = tiny_models.reference_model(tiny_models.variant_named(variant_name))
    config = reference.config.to_dict() | {"architectures": [type(reference).__name__]}
    tensors = reference.state_dict()
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    return MemoryCheckpoint(config, tensors)


def build(checkpoint: MemoryCheckpoint, parts: tuple[type, type], collective=None) -> Llama:
    ops, attention = parts[0](), parts[1]()
    ops.collective = collective
    return load_model(checkpoint, ops, attention)


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize(("variant_name", "size"), CASES)
def test_ranks_together_make_the_logits_of_one(variant_name, size, parts):
    checkpoint = checkpoint_of(variant_name)
    expected = tiny_models.reference_logits(tiny_models.variant_named(variant_name), PROMPT)

    def run(collective: ThreadCollective) -> torch.Tensor:
        return HandRunner(build(checkpoint, parts, collective)).run([(0, PROMPT)])[0]

    first, *others = run_ranks(size, run)
    torch.testing.assert_close(first, expected, atol=1e-4, rtol=0)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize(("variant_name", "size"), [("Llama-biases", 2), ("Llama-smollm2", 3)])
def test_a_replay_of_a_split_model_has_the_same_bits(variant_name, size):
    checkpoint = checkpoint_of(variant_name)

    def run(collective: ThreadCollective) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        replayed, direct = (
            HandRunner(build(checkpoint, PARTS["torch"], collective)) for _ in range(2)
        )
        ours = [logits for step in replayed.run_recorded(STEPS) for logits in step]
        return ours, [logits for chunks in STEPS for logits in direct.run(chunks)]

    for ours, theirs in run_ranks(size, run):
        assert len(ours) == len(theirs) == 7
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_each_rank_holds_its_share_and_no_more():
    checkpoint = checkpoint_of("Llama-smollm2")
    whole = build(checkpoint, PARTS["simple"]).weights

    def run(collective: ThreadCollective) -> Llama:
        return build(checkpoint, PARTS["simple"], collective)

    models = run_ranks(3, run)
    for rank, model in enumerate(models):
        weights = model.weights
        q, k, v = whole["layers.1.qkv"].split([72, 24, 24])
        share = torch.cat([part.chunk(3)[rank] for part in (q, k, v)])
        assert torch.equal(weights["layers.1.qkv"], share)
        assert torch.equal(weights["layers.1.down"], whole["layers.1.down"].chunk(3, 1)[rank])
        assert torch.equal(weights["layers.0.input_norm"], whole["layers.0.input_norm"])
        assert torch.equal(weights["embedding"], whole["embedding"])
        assert torch.equal(weights["head"], whole["embedding"].chunk(3)[rank])
        assert [spec.num_kv_heads for spec in model.cache_specs()] == [1, 1, 1]


def test_a_vocabulary_that_ranks_cannot_share_is_whole_on_each():
    checkpoint = checkpoint_of("Llama-smollm2")
    checkpoint.config["vocab_size"] = 95
    table = checkpoint.tensors["model.embed_tokens.weight"]
    checkpoint.tensors["model.embed_tokens.weight"] = table[:95]

    def run(collective: ThreadCollective | None) -> torch.Tensor:
        model = build(checkpoint, PARTS["torch"], collective)
        assert "head" not in model.weights
        return HandRunner(model).run([(0, PROMPT)])[0]

    first, *others = run_ranks(3, run)
    torch.testing.assert_close(first, run(None), atol=1e-4, rtol=0)
    assert all(torch.equal(first, other) for other in others)


REFUSED = "a model with 9 heads and 3 of keys and values cannot be split between"


@pytest.mark.parametrize(("size", "valid"), [(2, "1, 3"), (9, "1, 3")])
def test_a_size_that_would_cut_a_head_is_refused(size, valid):
    ops = TorchOps()
    ops.collective = ThreadCollective(0, size, None, [])
    with pytest.raises(ConfigError) as error:
        Llama(checkpoint_of("Llama-smollm2").config, ops, TorchAttention())
    assert str(error.value).splitlines() == [
        f"{REFUSED} {size} ranks (tensor-parallel-size)",
        "  the inner width of its MLP is 96",
        f"  valid sizes: {valid}",
    ]
