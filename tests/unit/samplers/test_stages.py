"""The stock stages, one by one, and as a pipeline beside the fused path of the op set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from octavo.interfaces.sampler import PenaltyRow, SamplingInputs, SamplingRow
from octavo.plugin.files import import_target
from octavo.plugin.options import RequestParams
from octavo.sampling_params import MIN_TEMPERATURE, SamplingParams
from octavo_plugins.ops.torch_ops import TorchOps
from octavo_plugins.samplers import plugin, stages

PIPELINE = [
    stages.AllowedIds(),
    stages.BadWords(),
    stages.MinTokens(),
    stages.LogitBias(),
    stages.Penalties(),
    stages.Temperature(),
    stages.MinP(),
    stages.TopK(),
    stages.TopP(),
]


def row_of(params, prompt=(1, 2), output=(3, 3, 4), eos=(0,), bad_words=()):
    return SamplingRow(params, prompt, output, eos, bad_words)


def applied(stage, row, logits):
    logits = torch.tensor(logits)
    stage.apply(logits, row)
    return logits.tolist()


INF = -math.inf


def test_native_stages_are_these_in_this_order():
    declared = [import_target(one.target) for one in plugin.octavo_sampler_stages()]
    assert [cls for cls in declared if cls.is_native] == [type(stage) for stage in PIPELINE]
    positions = [stage.position for stage in PIPELINE]
    assert positions == sorted(positions)
    assert all(position < 100 for position in positions[:5])
    assert 100 <= positions[5] < 200 <= positions[6]


def test_all_stages_are_declared_in_the_order_in_which_they_run():
    components = list(plugin.octavo_sampler_stages())
    positions = [import_target(component.target).position for component in components]
    assert positions == sorted(positions)
    assert [component.name for component in components if component.params] == [
        "dry", "top-n-sigma", "min-k", "typical-p", "xtc", "dynatemp", "mirostat",
    ]  # fmt: skip


def test_declared_models_are_those_that_the_stages_read():
    for component in plugin.octavo_sampler_stages():
        stage = import_target(component.target)
        if not stage.is_native:
            model = import_target(component.params)
            assert stage.parameters == tuple(model.model_fields)
            assert issubclass(model, RequestParams)


@pytest.mark.parametrize("stage", PIPELINE, ids=lambda stage: type(stage).__name__)
def test_p2_an_inactive_stage_changes_nothing(stage):
    params = SamplingParams()
    assert not stage.is_active(params)
    x = torch.randn(20)
    before = x.clone()
    stage.apply(x, row_of(params, output=()))
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("stage", "params"),
    [
        (stages.AllowedIds(), SamplingParams(allowed_token_ids=[3])),
        (stages.BadWords(), SamplingParams(bad_words=["x"])),
        (stages.MinTokens(), SamplingParams(min_tokens=2)),
        (stages.LogitBias(), SamplingParams(logit_bias={3: 1.0})),
        (stages.Penalties(), SamplingParams(repetition_penalty=1.1)),
        (stages.Penalties(), SamplingParams(frequency_penalty=-0.1)),
        (stages.Penalties(), SamplingParams(presence_penalty=0.1)),
        (stages.Temperature(), SamplingParams(temperature=0)),
        (stages.MinP(), SamplingParams(min_p=0.1)),
        (stages.TopK(), SamplingParams(top_k=1)),
        (stages.TopP(), SamplingParams(top_p=0.9)),
    ],
)
def test_a_stage_is_active_when_its_own_parameter_asks(stage, params):
    assert [other for other in PIPELINE if other.is_active(params)] == [
        other for other in PIPELINE if type(other) is type(stage)
    ]


def test_allowed_ids_mask_all_others():
    row = row_of(SamplingParams(allowed_token_ids=[2, 0]))
    assert applied(stages.AllowedIds(), row, [1.0, 2.0, -3.0, 4.0]) == [1.0, INF, -3.0, INF]


def test_bad_words_ban_completions_in_the_output_alone():
    row = row_of(SamplingParams(), prompt=(1, 2), bad_words=((3, 4, 5), (2, 0), (1,)))
    assert applied(stages.BadWords(), row, [0.0] * 6) == [0.0, INF, 0.0, 0.0, 0.0, INF]


def test_min_tokens_bans_every_end_until_they_are_there():
    params = SamplingParams(min_tokens=4, stop_token_ids=[2])
    row = row_of(params, eos=(0, 5))
    assert applied(stages.MinTokens(), row, [0.0] * 6) == [INF, 0.0, INF, 0.0, 0.0, INF]
    row = row_of(params, output=(3, 3, 4, 4), eos=(0, 5))
    assert applied(stages.MinTokens(), row, [0.0] * 6) == [0.0] * 6


def test_penalties_count_the_output_and_know_the_prompt():
    params = SamplingParams(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    got = applied(stages.Penalties(), row_of(params), [1.0, 4.0, -1.0, 4.0, -1.0, 1.0])
    assert got == [1.0, 2.0, -2.0, 2.0 - 2 * 0.5 - 0.25, -2.0 - 0.5 - 0.25, 1.0]


def test_temperature_0_leaves_the_first_of_the_largest():
    row = row_of(SamplingParams(temperature=0))
    assert applied(stages.Temperature(), row, [1.0, 7.0, 7.0]) == [INF, 7.0, INF]


def test_a_tiny_temperature_stays_finite():
    row = row_of(SamplingParams(temperature=MIN_TEMPERATURE))
    assert applied(stages.Temperature(), row, [60.0, 70.0])[1] == 0.0


@pytest.mark.parametrize("seed", range(12))
def test_the_pipeline_draws_what_the_fused_path_draws(seed):
    rng = np.random.default_rng(seed)
    width, count = 400, 30
    params = SamplingParams(
        temperature=float(rng.choice([0, 0.6, 1, 1.4])),
        top_k=int(rng.choice([0, 3, 50])),
        top_p=float(rng.choice([1, 0.5, 0.93])),
        min_p=float(rng.choice([0, 0.04])),
        repetition_penalty=float(rng.choice([1, 1.3])),
        frequency_penalty=float(rng.choice([0, 0.4])),
        presence_penalty=float(rng.choice([0, -0.3])),
        logit_bias={5: 3.0, 9: -100.0},
        allowed_token_ids=rng.choice(width, 300, replace=False).tolist(),
        min_tokens=30,
        max_tokens=64,
        bad_words=["x"],
        stop_token_ids=[11],
    )
    prompt, output = rng.integers(0, width, 20).tolist(), rng.integers(0, width, 25).tolist()
    row = row_of(params, prompt, output, eos=(12,), bad_words=((output[-1], 8),))
    x = torch.from_numpy((rng.standard_normal((count, width)) * 2).astype(np.float32))
    uniforms = rng.random(count)
    ids = np.unique(prompt + output)
    counts = np.array([output.count(i) for i in ids.tolist()], dtype=np.int32)

    def inputs(**filters):
        return SamplingInputs(
            temperature=np.full(count, filters.get("temperature", 1.0), dtype=np.float32),
            top_k=np.full(count, filters.get("top_k", 0), dtype=np.int32),
            top_p=np.full(count, filters.get("top_p", 1.0)),
            min_p=np.full(count, filters.get("min_p", 0.0)),
            uniforms=uniforms,
        )

    fused = inputs(
        temperature=params.temperature, top_k=params.top_k, top_p=params.top_p, min_p=params.min_p
    )
    for i in range(count):
        fused.allowed.append((i, np.array(params.allowed_token_ids)))
        fused.bias.append((i, np.array([5, 9]), np.array([3.0, -100.0], dtype=np.float32)))
        penalties = (params.repetition_penalty, params.frequency_penalty, params.presence_penalty)
        fused.penalties.append(PenaltyRow(i, ids, counts, *penalties))
        fused.banned.append((i, np.array([11, 12, 8])))
    stepwise = x.clone()
    for logits in stepwise:
        for stage in PIPELINE:
            if stage.is_active(params):
                stage.apply(logits, row)
    one_by_one = TorchOps().sample(stepwise, inputs())
    together = TorchOps().sample(x.clone(), fused)
    assert one_by_one.token_ids.tolist() == together.token_ids.tolist()
    assert len(set(together.token_ids.tolist())) > 1
