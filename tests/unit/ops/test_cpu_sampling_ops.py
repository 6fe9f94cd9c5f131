"""Sampling of the cpu op set: what the torch op set does with the same inputs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from octavo.interfaces.sampler import LogprobInputs, PenaltyRow, SamplingInputs
from octavo_plugins.ops.cpu_sampling import CpuSamplingOps
from octavo_plugins.ops.torch_ops import TorchOps

VOCAB = 1000


def inputs_of(count: int, seed: int) -> SamplingInputs:
    """Rows with all edits, some, or none, each drawn in its own way."""
    rng = np.random.default_rng(seed)
    inputs = SamplingInputs(
        temperature=rng.choice([0.0, 0.7, 1.3], count).astype(np.float32),
        top_k=rng.choice([0, 3, 40], count).astype(np.int32),
        top_p=rng.choice([1.0, 0.8], count),
        min_p=rng.choice([0.0, 0.05], count),
        uniforms=rng.random(count),
    )
    for row in range(count):
        ids = rng.permutation(VOCAB)
        if row % 2:
            inputs.allowed.append((row, ids[:900]))
            inputs.bias.append((row, ids[:9], np.arange(9, dtype=np.float32)))
        if row % 3:
            counts = rng.integers(0, 3, 50).astype(np.int32)
            inputs.penalties.append(PenaltyRow(row, ids[:50], counts, 1.3, 0.2, -0.4))
            inputs.banned.append((row, ids[:3]))
        if row % 5:
            mask = rng.integers(0, 2**32, -(-VOCAB // 32), dtype=np.uint32)
            inputs.masks.append((row, mask))
    return inputs


@pytest.mark.parametrize("count", [1, 2, 30])
def test_draws_and_edits_are_those_of_the_torch_op_set(count):
    ops = CpuSamplingOps(None)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = torch.from_numpy(rng.standard_normal((count, VOCAB)).astype(np.float32) * 3)
        if count > 2:
            x[2], x[3, 5] = -torch.inf, torch.inf
        expected_logits, logits = x.clone(), x.clone()
        inputs = inputs_of(count, seed)
        expected = TorchOps().sample(expected_logits, copy.deepcopy(inputs))
        outputs = ops.sample(logits, inputs)
        assert outputs.token_ids.tolist() == expected.token_ids.tolist()
        assert outputs.is_bad.tolist() == expected.is_bad.tolist()
        assert outputs.is_bad.dtype == expected.is_bad.dtype
        assert logits.equal(expected_logits)


def test_edits_of_a_call_that_fails_are_forgotten():
    ops, x = CpuSamplingOps(None), torch.zeros(2, VOCAB)
    inputs = inputs_of(2, 0)
    inputs.bias.append((0, np.array([VOCAB]), np.ones(1, np.float32)))
    with pytest.raises(ValueError, match="token ids must be from 0 up to 1000"):
        ops.sample(x.clone(), inputs)
    plain = inputs_of(2, 0)
    plain.allowed, plain.bias, plain.penalties, plain.banned, plain.masks = [], [], [], [], []
    ops.sample(x, plain)
    assert not x.any()


def test_logprobs_and_noise_are_those_of_the_torch_op_set():
    ops, rng = CpuSamplingOps(None), np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((9, VOCAB)).astype(np.float32))
    num_top = np.array([0, 1, 5, -1], dtype=np.int32)
    inputs = LogprobInputs(rng.integers(0, 9, 4), rng.integers(0, VOCAB, 4), num_top)
    expected, outputs = TorchOps().logprobs(x, inputs), ops.logprobs(x, inputs)
    np.testing.assert_allclose(outputs.chosen, expected.chosen, rtol=1e-6)
    assert outputs.ranks.tolist() == expected.ranks.tolist()
    for i in range(4):
        assert outputs.top_ids[i].tolist() == expected.top_ids[i].tolist()
        np.testing.assert_allclose(outputs.top_logprobs[i], expected.top_logprobs[i], rtol=1e-6)
    seeds, numbers = rng.integers(0, 2**63, 7).astype(np.uint64), rng.integers(0, 99, 7)
    wanted = TorchOps().uniforms(seeds, numbers, numbers, 3)
    assert ops.uniforms(seeds, numbers, numbers, 3).tolist() == wanted.tolist()
