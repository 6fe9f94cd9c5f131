"""Dynamic temperature and mirostat: values beside plain implementations, and what they aim at."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import stage_references as expected
from octavo.interfaces.sampler import SamplingRow
from octavo.sampling_params import SamplingParams
from octavo_kernels.reference.noise import uniform
from octavo_plugins.samplers.adaptive import DynamicTemperature, Mirostat
from octavo_plugins.samplers.stages import Temperature

INF = -math.inf


def rows(count=30, width=400):
    """Rows of several shapes; in every third most tokens are gone."""
    rng = np.random.default_rng(5)
    for index in range(count):
        row = rng.standard_normal(width) * rng.choice([0.01, 1, 3, 9])
        if index % 3 == 1:
            row[rng.random(width) < 0.97] = INF
        yield row.astype(np.float32)


def row_of(state=None, temperature=1.0, **args):
    params = SamplingParams(temperature=temperature, extra_args=args)
    return SamplingRow(params, (1, 2), (3,), state=state)


def tempered(logits, row):
    x = torch.from_numpy(np.array(logits, dtype=np.float32))
    for stage in (Temperature(), DynamicTemperature()):
        if stage.is_active(row.params):
            stage.apply(x, row)
    return x.numpy()


# ---------------------------------------------------------------------- dynamic temperature


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize(("temperature", "spread"), [(1, 0.5), (0.7, 0.3), (0.8, 1.5), (1.6, 0.2)])
def test_dynatemp_gives_the_distribution_of_the_plain_way(temperature, spread, exponent):
    args = {"dynatemp_range": spread, "dynatemp_exponent": exponent}
    for logits in rows():
        got = expected.probabilities(tempered(logits, row_of(temperature=temperature, **args)))
        want = expected.dynatemp(logits, temperature, spread, exponent)
        assert got == pytest.approx(expected.probabilities(want), rel=2e-4, abs=1e-12)


def test_dynatemp_is_hot_where_all_is_equal_and_cold_where_one_stands_out():
    args = {"dynatemp_range": 0.5, "temperature": 1.0}
    flat = torch.tensor([0.0, -0.001, 0.0])
    DynamicTemperature().apply(flat, row_of(**args))
    assert float(flat[0] - flat[1]) == pytest.approx(0.001 / 1.5, rel=1e-3)
    sharp = torch.tensor([60.0, 0.0, 0.0])
    DynamicTemperature().apply(sharp, row_of(**args))
    assert float(sharp[0] - sharp[1]) == pytest.approx(60 / 0.5, rel=1e-3)


def test_a_dynamic_temperature_of_0_is_greedy():
    x = torch.tensor([1e4, -1e4, 1e4 - 1e3])
    DynamicTemperature().apply(x, row_of(dynatemp_range=1.0))
    assert torch.isfinite(x).tolist() == [True, False, False]


def test_dynatemp_leaves_a_greedy_request_and_a_lone_token_alone():
    assert not DynamicTemperature().is_active(row_of(temperature=0, dynatemp_range=1.0).params)
    lone = torch.tensor([INF, 3.0, INF])
    DynamicTemperature().apply(lone, row_of(dynatemp_range=1.0))
    assert lone.tolist() == [INF, 3.0, INF]


# ---------------------------------------------------------------------- mirostat


def support(logits):
    return np.flatnonzero(np.asarray(logits) > INF).tolist()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("mu", [-3.0, 0.5, 2.0, 6.0, 12.0])
def test_mirostat_keeps_what_the_plain_way_keeps(version, mu):
    for logits in rows():
        x = torch.from_numpy(logits.copy())
        Mirostat().apply(x, row_of(mu, mirostat=version))
        assert support(x) == support(expected.mirostat(logits, version, mu))


def test_mirostat_begins_at_twice_its_target():
    assert Mirostat().new_state(row_of(mirostat=2, mirostat_tau=3.5)) == 7.0
    assert Mirostat().new_state(row_of(mirostat=1)) == 10.0
    assert Mirostat().new_state(row_of()) is None


def test_mu_falls_by_the_surprise_in_what_was_left():
    row = row_of(4.0, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.2)
    edited = torch.log(torch.tensor([0.5, 0.25, 0.25]))
    edited = torch.cat((edited, torch.tensor([INF])))
    assert Mirostat().advance(row, edited, 1) == pytest.approx(4.0 - 0.2 * (2.0 - 3.0))
    assert Mirostat().advance(row, edited, 0) == pytest.approx(4.0 - 0.2 * (1.0 - 3.0))
    assert row.state == 4.0


def test_a_token_that_stages_had_dropped_leaves_mu_as_it_is():
    row = row_of(4.0, mirostat=2)
    assert Mirostat().advance(row, torch.tensor([0.0, INF]), 1) == 4.0


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_mirostat_holds_the_mean_surprise_at_its_target(version, tau):
    rng = np.random.default_rng(1)
    logits = (-1.3 * np.log(np.arange(1, 5001)) + rng.standard_normal(5000) * 0.1).astype(
        np.float32
    )
    stage, row = Mirostat(), row_of(mirostat=version, mirostat_tau=tau)
    row.state = stage.new_state(row)
    surprises = []
    for position in range(700):
        x = torch.from_numpy(logits.copy())
        stage.apply(x, row)
        probs = expected.probabilities(x)
        token_id = int(np.searchsorted(probs.cumsum(), uniform(3, position, 0, 0)))
        surprises.append(expected.surprise(x, token_id))
        row.state = stage.advance(row, x, token_id)
    assert np.mean(surprises[100:]) == pytest.approx(tau, abs=0.15)


def test_mirostat_1_keeps_every_token_of_equal_ones():
    x = torch.zeros(50)
    Mirostat().apply(x, row_of(1.0, mirostat=1))
    assert support(x) == list(range(50))
