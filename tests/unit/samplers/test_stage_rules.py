"""P1 to P4 of `SamplerStage`, for every stage that is not native."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.interfaces.sampler import SamplingRow
from octavo.plugin.files import import_target
from octavo.sampling_params import SamplingParams
from octavo_plugins.samplers import plugin

INF = -math.inf
STAGES = {
    component.name: import_target(component.target)
    for component in plugin.octavo_sampler_stages()
    if component.params
}
#: what makes each stage do something
ACTIVE = {
    "dry": {"dry_multiplier": 0.5, "dry_breakers": [[[9], []], [[4], [5]]]},
    "top-n-sigma": {"top_n_sigma": 0.7},
    "min-k": {"min_k": 1.0},
    "typical-p": {"typical_p": 0.5},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    "dynatemp": {"dynatemp_range": 0.6},
    "mirostat": {"mirostat": 2, "mirostat_tau": 1.0},
}
WIDTH = 24
every_stage = pytest.mark.parametrize("name", STAGES)
logits_rows = st.lists(
    st.one_of(st.just(INF), st.floats(-20, 20, width=32)), min_size=WIDTH, max_size=WIDTH
)
token_ids = st.lists(st.integers(0, 9), max_size=20)


def row_of(name, *, prompt=(4, 5, 6), output=(4, 5), **others):
    params = SamplingParams(extra_args=ACTIVE.get(name), **others)
    row = SamplingRow(params, prompt, output, (0,), ((1, 2),), uniform=lambda _: 0.0)
    row.state = STAGES[name]().new_state(row) if name in STAGES else None
    return row


def test_there_is_an_example_for_every_stage():
    assert set(ACTIVE) == set(STAGES)


@every_stage
@settings(max_examples=50, deadline=None)
@given(values=logits_rows, prompt=token_ids, output=token_ids)
def test_p1_a_stage_changes_its_row_of_logits_and_nothing_else(name, values, prompt, output):
    stage, row = STAGES[name](), row_of(name, prompt=tuple(prompt), output=tuple(output))
    before = copy.deepcopy((row.params, row.prompt_ids, row.output_ids, row.eos_token_ids))
    attributes = dict(vars(stage))
    memory = torch.full((3, WIDTH), 5.0)
    memory[1] = torch.tensor(values)
    stage.apply(memory[1], row)
    assert (row.params, row.prompt_ids, row.output_ids, row.eos_token_ids) == before
    assert vars(stage) == attributes
    assert torch.equal(memory[[0, 2]], torch.full((2, WIDTH), 5.0))
    again = torch.tensor(values)
    STAGES[name]().apply(again, row)
    assert torch.equal(again, memory[1])


@every_stage
def test_p2_an_inactive_stage_changes_nothing(name):
    stage, x = STAGES[name](), torch.randn(WIDTH)
    for params in (SamplingParams(), SamplingParams(extra_args={"another": 1})):
        assert not stage.is_active(params)
        row = SamplingRow(params, (1, 2, 1, 2), (1,))
        row.state = stage.new_state(row)
        assert row.state is None
        before = x.clone()
        stage.apply(x, row)
        assert torch.equal(x, before)
        assert stage.advance(row, x, 3) is None


@every_stage
def test_a_stage_is_active_when_its_own_parameter_asks(name):
    params = SamplingParams(extra_args=ACTIVE[name])
    assert [other for other, cls in STAGES.items() if cls().is_active(params)] == [name]


@every_stage
@settings(max_examples=100, deadline=None)
@given(values=logits_rows)
def test_p3_masked_tokens_stay_masked_and_something_is_left(name, values):
    x = torch.tensor(values)
    STAGES[name]().apply(x, row_of(name))
    masked = torch.tensor(values) == INF
    assert (x[masked] == INF).all()
    assert not x.isnan().any()
    assert masked.all() or (x > INF).any()


@every_stage
@settings(max_examples=50, deadline=None)
@given(values=logits_rows, drawn=token_ids)
def test_p4_states_are_returned_and_never_changed(name, values, drawn):
    stage, row = STAGES[name](), row_of(name)
    states, copies = [row.state], [copy.deepcopy(plain(row.state))]
    attributes = dict(vars(stage))
    for token_id in drawn:
        x = torch.tensor(values)
        stage.apply(x, row)
        before = x.clone()
        row.state = stage.advance(row, x, token_id)
        assert torch.equal(x, before)
        states.append(row.state)
        copies.append(copy.deepcopy(plain(row.state)))
    assert vars(stage) == attributes
    assert [plain(state) for state in states] == copies


def plain(state):
    """Return what a state holds, to be compared."""
    return (state.ids.tolist(), state.repeats.tolist()) if hasattr(state, "repeats") else state


@every_stage
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_no_distribution_is_left_for_the_op_set_to_report(name, bad):
    x = torch.randn(WIDTH)
    x[7] = bad
    STAGES[name]().apply(x, row_of(name))
    assert x[7].isnan() or x[7] == bad
    gone = torch.full((WIDTH,), INF)
    STAGES[name]().apply(gone, row_of(name))
    assert (gone == INF).all()


@pytest.mark.parametrize("name", sorted(set(STAGES) - {"dry"}))
def test_a_greedy_request_keeps_its_best_token(name):
    """Temperature 0 leaves one token before most stages; those before it keep the largest.

    DRY may make another token the best: that is what it is for.
    """
    stage = STAGES[name]()
    rng = np.random.default_rng(2)
    for _ in range(20):
        x = torch.from_numpy(rng.standard_normal(WIDTH).astype(np.float32))
        best = int(x.argmax())
        if stage.position > 100:
            x[torch.arange(WIDTH) != best] = INF
        stage.apply(x, row_of(name, temperature=0))
        assert int(x.argmax()) == best
        assert x[best] > INF
