"""M1 to M4 on tiny models that mix attention with linear attention, and what configs may say."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from families import load_model
from hybrid_twin import FULL, LINEAR, SLIDING, Hybrid
from octavo.errors import ModelLoadError
from octavo.execution.cache_layout import CacheLayout
from octavo.testing.tensors.hand_runner import HandRunner
from octavo_plugins.architectures.linear_hybrid import LinearHybrid, decays
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from simple_ops import SimpleAttention, SimpleOps
from thread_ranks import run_ranks

PARTS = {"simple": (SimpleOps, SimpleAttention), "torch": (TorchOps, TorchAttention)}
ALL_KINDS = Hybrid((LINEAR, SLIDING, LINEAR, FULL))
MODELS = [ALL_KINDS, Hybrid((FULL, LINEAR)), Hybrid((LINEAR, LINEAR)), Hybrid((LINEAR, SLIDING))]
PROMPT = [(7 * i + i * i // 3) % 93 + 3 for i in range(40)]
STEPS = [
    [(0, PROMPT[:5]), (2, PROMPT[:1])],
    [(1, PROMPT[:30]), (0, PROMPT[5:6]), (2, PROMPT[1:20]), (3, PROMPT[7:9])],
    [(0, PROMPT[6:7])],
    [(2, PROMPT[20:21]), (1, PROMPT[30:31]), (0, PROMPT[7:8]), (3, PROMPT[9:10])],
]


@pytest.fixture(params=MODELS, ids=str)
def hybrid(request):
    return request.param


@pytest.fixture(params=PARTS)
def parts(request):
    return PARTS[request.param]


def build(hybrid, parts, collective=None):
    ops, attention = parts[0](), parts[1]()
    ops.collective = collective
    return load_model(hybrid.checkpoint(), ops, attention)


def assert_close(actual, expected):
    torch.testing.assert_close(actual.double(), expected, atol=1e-4, rtol=0)


def test_m1_prefill_equals_the_twin(hybrid, parts):
    (logits,) = HandRunner(build(hybrid, parts)).run([(0, PROMPT)])
    assert_close(logits, hybrid.logits(PROMPT))


def test_m1_a_ragged_batch_equals_the_twin(hybrid, parts):
    other = PROMPT[::-1][:19]
    runner = HandRunner(build(hybrid, parts))
    first = runner.run([(2, PROMPT[:10]), (0, other[:1]), (1, PROMPT[:31])])
    second = runner.run([(0, other[1:]), (1, PROMPT[31:32]), (2, PROMPT[10:39])])
    third = runner.run([(1, PROMPT[32:]), (2, PROMPT[39:])])
    assert_close(torch.cat([first[0], second[2], third[1]]), hybrid.logits(PROMPT))
    assert_close(torch.cat([first[2], second[1], third[0]]), hybrid.logits(PROMPT))
    assert_close(torch.cat([first[1], second[0]]), hybrid.logits(other))


def test_m3_a_chunk_then_decodes_equals_one_prefill(hybrid):
    whole = HandRunner(build(hybrid, PARTS["torch"])).run([(0, PROMPT)])[0]
    for cut in (1, 12, 27):
        runner = HandRunner(build(hybrid, PARTS["torch"]), seed=cut)
        pieces = [runner.run([(0, PROMPT[:cut])])[0]]
        pieces += [runner.run([(0, [token])])[0] for token in PROMPT[cut:]]
        torch.testing.assert_close(torch.cat(pieces), whole, atol=5e-5, rtol=0)


def test_m2_every_tensor_is_used_once_and_every_parameter_written_once(hybrid):
    model = build(hybrid, PARTS["torch"])
    sources = [source for spec in model.parameters() for source in spec.sources]
    assert sorted(sources) == sorted(hybrid.tensors)
    assert sorted(model.weights) == sorted(spec.name for spec in model.parameters())


class Refuse(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"a forward pass called {func} by itself")


def test_m4_a_forward_pass_calls_only_ops_and_attention():
    model = build(ALL_KINDS, PARTS["simple"])
    runner = HandRunner(model)
    runner.fill([(0, PROMPT)])
    model.ops, model.attention = mock.Mock(), mock.Mock()
    with Refuse():
        runner.direct()
    assert len(model.attention.forward.mock_calls) == 2
    assert len(model.ops.linear_attention.mock_calls) == 2


def test_a_replay_has_the_same_bits_as_direct_execution(hybrid, parts):
    replayed, direct = (HandRunner(build(hybrid, parts)) for _ in range(2))
    steps = replayed.run_recorded(STEPS)
    for chunks, logits in zip(STEPS, steps, strict=True):
        for ours, theirs in zip(logits, direct.run(chunks), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_together_make_the_logits_of_one(size):
    def run(collective):
        return HandRunner(build(ALL_KINDS, PARTS["torch"], collective)).run([(0, PROMPT)])[0]

    first, *others = run_ranks(size, run)
    assert_close(first, ALL_KINDS.logits(PROMPT))
    assert all(torch.equal(first, other) for other in others)


def test_layers_of_a_kind_share_a_group_and_states_lie_apart_from_keys():
    hybrid = Hybrid((LINEAR, SLIDING, LINEAR, FULL, SLIDING, FULL))
    layout = CacheLayout.of(build(hybrid, PARTS["torch"]).cache_specs())
    assert [group.reach for group in layout.groups] == [1, 7, None]
    assert layout.group_of == (0, 1, 0, 2, 1, 2)
    assert layout.memory_of == (0, 1, 2, 1, 3, 3)


def test_a_state_that_is_lost_would_be_noticed():
    """The comparison with the twin sees when a step starts from another state."""
    runner = HandRunner(build(ALL_KINDS, PARTS["torch"]))
    runner.run([(0, PROMPT[:20])])
    for cache in runner.step_buffers.caches:
        if hasattr(cache, "states"):
            cache.states.zero_()
    (logits,) = runner.run([(0, PROMPT[20:])])
    assert (logits.double() - ALL_KINDS.logits(PROMPT)[20:]).abs().max() > 0.1


def test_each_head_forgets_at_its_own_rate():
    rates = decays(8)
    assert rates[0] == pytest.approx(0.6065, abs=1e-4)  # exp(-1/2), then exp(-1/4), ...
    assert rates[-1] == pytest.approx(0.9961, abs=1e-4)


def refusal(**changes):
    with pytest.raises(ModelLoadError) as error:
        LinearHybrid(ALL_KINDS.config | changes, SimpleOps(), SimpleAttention())
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        (
            "layer_types",
            [LINEAR, "mamba", FULL, FULL],
            "4 of full_attention, sliding_attention, linear_attention",
        ),
        ("num_key_value_heads", 2, "4, one for each head"),
        ("layer_types", None, "4 of full_attention, sliding_attention, linear_attention"),
    ],
)
def test_values_that_cannot_be_are_refused(key, value, valid):
    assert refusal(**{key: value}) == [
        f"unsupported {key} {value!r} (the model's config)",
        f"  valid: {valid}",
    ]
