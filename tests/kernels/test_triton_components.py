"""The op set and the attention `triton` behind their interfaces, and a model that runs on them.

Runs as `test_triton_kernels` does: compiled on a GPU, or in the interpreter elsewhere.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from attention_steps import STEPS, TABLES, Sequences
from byte_models import random_prompt, save_byte_model
from fixed_costs import fix_costs
from octavo import LLM, SamplingParams
from octavo.errors import UnsupportedError
from octavo.interfaces.architecture import RotaryConfig
from octavo.interfaces.attention import CacheSpec
from octavo.interfaces.executor import StepCosts
from octavo.interfaces.ops import AdapterBatch, AdapterPart, AdapterParts, AdapterSegment, Count
from octavo.interfaces.weights import WeightBlocks
from octavo_kernels.triton.bench import Sizes, main
from octavo_kernels.triton.devices import device_name, is_interpreted
from octavo_plugins.attention.triton_attention import TritonAttention
from octavo_plugins.ops.torch_ops import TorchOps
from octavo_plugins.ops.triton_ops import TritonOps
from tiny_models import FULL, SLIDING, Variant

if not torch.cuda.is_available() and not os.environ.get("TRITON_INTERPRET"):
    pytest.skip("no GPU here; the interpreter runs these elsewhere", allow_module_level=True)

DEVICE = device_name()
CAP, CANARY = 5, 777.0


# ---------------------------------------------------------------------- attention


@pytest.mark.parametrize("window", [None, 5])
def test_steps_of_mixed_chunks_and_decodes_follow_the_definition(window):
    sequences = Sequences(TritonAttention(), TABLES, window, DEVICE)
    for counts in STEPS:
        out, expected = sequences.step(counts)
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=2e-6)


def test_bytes_are_those_that_are_allocated_and_other_dtypes_are_refused():
    attention = TritonAttention()
    for dtype in ("float32", "float16"):
        spec = CacheSpec(3, 64, dtype)
        cache = attention.allocate(spec, 5, 16)
        assert attention.bytes_per_block(spec, 16) * 5 == cache.k.nbytes + cache.v.nbytes
        assert cache.k.dtype == getattr(torch, dtype)
    with pytest.raises(UnsupportedError, match="cannot keep a cache of dtype 'float64'"):
        attention.allocate(CacheSpec(1, 8, "float64"), 2, 4)
    if is_interpreted():
        with pytest.raises(UnsupportedError) as caught:
            attention.bytes_per_block(CacheSpec(1, 8, "bfloat16"), 4)
        assert str(caught.value) == (
            "the triton attention cannot keep a cache of dtype 'bfloat16'\n"
            "  dtypes it takes: float32, float16\n"
            "  the interpreter's products of bfloat16 are wrong"
        )


# ---------------------------------------------------------------------- ops


def blocks_of(tensor):
    data = tensor.contiguous().numpy().reshape(-1, tensor.shape[-1]).view(np.uint8)
    return WeightBlocks("w", "F32", tuple(tensor.shape), data, "memory")


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def results(ops, device):
    """Return what each operation leaves in its buffers when 3 of 5 rows are live."""
    x, wide, count = random(CAP, 24).to(device), random(CAP, 48).to(device), Count(3)
    norm = ops.pack_vector([blocks_of(1 + random(24) / 4)])
    made = {}

    def canaries(name, *shape):
        made[name] = torch.full((CAP, *shape), CANARY, device=device)
        return made[name]

    out = canaries("rms_norm", 24)
    ops.rms_norm(out, x, norm, 1e-5, count)
    out = canaries("add_rms_norm", 24)
    residual = made["residual"] = wide[:, :24].clone()
    ops.add_rms_norm(out, residual, x, norm, 1e-5, count)
    ops.silu_mul(canaries("silu_mul", 24), wide, count)
    ops.gelu_mul(canaries("gelu_mul", 24), wide, count)
    heads = made["rotary"] = wide.view(CAP, 6, 8).clone()
    table = ops.rotary_table(RotaryConfig(8, 100.0, partial_factor=0.5), 16)
    positions = torch.tensor([0, 3, 15, 2, 1]).to(device)
    ops.rotary(heads[:, :4], heads[:, 4:5], positions, table, count)
    weight = ops.pack_linear([blocks_of(random(7, 24)), blocks_of(random(2, 24))])
    ops.linear(canaries("linear", 9), x, weight, None, count)
    changes = [
        AdapterPart(random(2, 24), random(7, 2), 0),
        AdapterPart(random(3, 24), random(2, 3), 7),
    ]
    segments = [
        AdapterSegment(4, torch.tensor([0, 2]), torch.tensor([[1.0], [0.5]])),
        AdapterSegment(4, torch.tensor([1]), torch.tensor([[2.0]]), first=1),
        AdapterSegment(5, torch.tensor([2]), torch.tensor([[1.0]]), first=2),
    ]
    adapted = AdapterParts({4: ops.pack_adapter(changes)})
    ops.adapt(canaries("adapt", 9), x, adapted, AdapterBatch(segments))
    embedding = ops.pack_embedding(blocks_of(random(11, 24)))
    ops.embedding(canaries("embedding", 24), positions, embedding, Count(2))
    return {name: tensor.cpu() for name, tensor in made.items()}


def test_operations_do_what_those_of_torch_do_to_the_live_rows_and_no_others():
    expected = results(TorchOps(), "cpu")
    for name, actual in results(TritonOps(), DEVICE).items():
        torch.testing.assert_close(actual, expected[name], rtol=2e-6, atol=2e-6, msg=name)
        assert torch.equal(actual[3:], expected[name][3:]), name


@pytest.mark.skipif(not is_interpreted(), reason="a GPU is measured with whole sizes, elsewhere")
def test_the_benchmark_runs_and_gives_shares(capsys):
    sizes = Sizes(3, 1, 64, (2,), ((2, 40),), ((6, 20),), 64, 1 << 16, 1, (torch.float32,))
    main(sizes)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.endswith("% of reading speed")]) == 5
    assert len([line for line in lines if line.endswith("% of a matrix product's speed")]) == 1


# ---------------------------------------------------------------------- a model

TINY = {
    "vocab_size": 258,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": None,
    "num_hidden_layers": 2,
    "max_position_embeddings": 256,
    "sliding_window": 16,
    "layer_types": [SLIDING, FULL],
    # three query heads to a key head, as SmolLM2 has
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_size": 32,
    "intermediate_size": 48,
}
MODEL = Variant("Ministral-triton", "Ministral", options=TINY)
NGRAM = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3}
#: outputs of few letters repeat themselves, so that drafts are made
LETTERS = dict.fromkeys(b"abcd", 12.0)
SETTINGS = {
    "max_num_seqs": 2,
    "max_num_batched_tokens": 12,
    "max_model_len": 64,
    "num_gpu_blocks_override": 12,
    "threads": 1,
}


@pytest.mark.skipif(not is_interpreted(), reason="the buffers of a step are in main memory")
def test_a_model_gives_the_same_greedy_tokens_as_on_torch(tmp_path, monkeypatch):
    """Chunks, decodes, a prefix hit and drafts, over a window and a full layer."""
    costs, steps = StepCosts.linear(1.0, 1e-6), []
    fix_costs(monkeypatch, costs)
    path = save_byte_model(MODEL, tmp_path)
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logit_bias=LETTERS)
    prompts = [random_prompt(19, 1), [*random_prompt(19, 1)[:16], 5, 6], [7, 8, 9]]

    def answers(name, **settings):
        with LLM(path, ops=name, attention=name, **SETTINGS, **settings) as llm:
            outputs = llm.generate(prompts, params, use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs]

    expected = answers("torch")
    assert len({tuple(ids) for ids in expected}) == 3
    prepare = TritonAttention.prepare
    monkeypatch.setattr(
        TritonAttention, "prepare", lambda self, batch: (steps.append(batch), prepare(self, batch))
    )
    assert answers("triton") == expected
    num_plain = len(steps)
    assert num_plain > 0
    assert answers("triton", speculative_config=NGRAM) == expected
    assert len(steps) - num_plain < num_plain, "no draft was accepted"
