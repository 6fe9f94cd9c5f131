"""M1 to M4 on tiny random models of every family and variant that transformers has too."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tiny_models
from families import load_model
from octavo.testing.tensors.hand_runner import HandRunner
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from octavo_plugins.weights.safetensors_format import SafetensorsFormat
from simple_ops import SimpleAttention, SimpleOps
from tiny_models import GEMMA_VARIANTS, VARIANTS, Variant

if TYPE_CHECKING:
    from octavo.interfaces.architecture import Architecture
    from octavo.interfaces.weights import Checkpoint

PROMPT = [(7 * i + i * i // 3) % 93 + 3 for i in range(40)]
SIMPLE, TORCH = (SimpleOps, SimpleAttention), (TorchOps, TorchAttention)
PARTS = {"simple": SIMPLE, "torch": TORCH}


@pytest.fixture(scope="module", params=[*VARIANTS, *GEMMA_VARIANTS], ids=str)
def variant(request) -> Variant:
    return request.param


@pytest.fixture(scope="module")
def checkpoint(variant, tmp_path_factory) -> Checkpoint:
    folder = tiny_models.save(variant, tmp_path_factory.mktemp("model"))
    return SafetensorsFormat().open(folder)


@pytest.fixture(scope="module")
def expected(variant) -> torch.Tensor:
    return tiny_models.reference_logits(variant, PROMPT)


@pytest.fixture(params=PARTS)
def parts(request) -> tuple[type, type]:
    return PARTS[request.param]


def build(checkpoint: Checkpoint, parts: tuple[type, type]) -> Architecture:
    make_ops, make_attention = parts
    return load_model(checkpoint, make_ops(), make_attention())


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def test_m1_prefill_equals_transformers(checkpoint, parts, expected):
    (logits,) = HandRunner(build(checkpoint, parts)).run([(0, PROMPT)])
    assert_close(logits, expected)


def test_m1_a_ragged_batch_equals_transformers(checkpoint, parts, variant, expected):
    other = PROMPT[::-1][:19]
    runner = HandRunner(build(checkpoint, parts))
    first = runner.run([(2, PROMPT[:10]), (0, other[:1]), (1, PROMPT[:31])])
    second = runner.run([(0, other[1:]), (1, PROMPT[31:32]), (2, PROMPT[10:39])])
    third = runner.run([(1, PROMPT[32:]), (2, PROMPT[39:])])
    assert_close(torch.cat([first[0], second[2], third[1]]), expected)
    assert_close(torch.cat([first[2], second[1], third[0]]), expected)
    assert_close(torch.cat([first[1], second[0]]), tiny_models.reference_logits(variant, other))


@pytest.mark.parametrize("parts", [TORCH], ids=["torch"])
def test_m1_decoding_one_by_one_equals_transformers(checkpoint, parts, expected):
    runner = HandRunner(build(checkpoint, parts))
    logits = torch.cat([runner.run([(0, [token])])[0] for token in PROMPT])
    assert_close(logits, expected)


def test_m3_a_chunk_then_decodes_equals_one_prefill(checkpoint):
    whole = HandRunner(build(checkpoint, TORCH)).run([(0, PROMPT)])[0]
    runner = HandRunner(build(checkpoint, TORCH), seed=1)
    pieces = [runner.run([(0, PROMPT[:27])])[0]]
    pieces += [runner.run([(0, [token])])[0] for token in PROMPT[27:]]
    torch.testing.assert_close(torch.cat(pieces), whole, atol=5e-5, rtol=0)


def test_m2_every_tensor_is_used_once_and_every_parameter_written_once(checkpoint):
    model = build(checkpoint, TORCH)
    sources = [source for spec in model.parameters() for source in spec.sources]
    assert sorted(sources) == sorted(checkpoint.names())
    assert sorted(model.weights) == sorted(spec.name for spec in model.parameters())


class Refuse(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"a forward pass called {func} by itself")


def test_m4_a_forward_pass_calls_only_ops_and_attention(checkpoint):
    model = build(checkpoint, SIMPLE)
    runner = HandRunner(model)
    runner.fill([(0, PROMPT)])
    model.ops, model.attention = mock.Mock(), mock.Mock()
    with Refuse():
        runner.direct()
    assert len(model.attention.forward.mock_calls) == 3
    assert len(model.ops.linear.mock_calls) == 3 * 4 + 1
