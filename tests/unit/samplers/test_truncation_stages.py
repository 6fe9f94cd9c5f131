"""typical-p, top-n-sigma, min-k and XTC: what they keep, beside plain implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stage_references as expected
from octavo.interfaces.sampler import SamplingRow
from octavo.sampling_params import SamplingParams
from octavo_kernels.reference.noise import uniform
from octavo_plugins.samplers.truncation import XTC_PURPOSE, MinK, TopNSigma, TypicalP, Xtc

INF = -math.inf


def applied(stage, logits, *, dice=0.0, temperature=1.0, **args):
    """Return logits after one stage; `dice` is the row's noise."""
    x = torch.tensor(np.asarray(logits), dtype=torch.float32)
    params = SamplingParams(extra_args=args, temperature=temperature)
    stage.apply(x, SamplingRow(params, (1, 2), (3,), uniform=lambda _: dice))
    return x.numpy()


def support(logits):
    return np.flatnonzero(np.asarray(logits) > INF).tolist()


def random_rows(count=40, width=300):
    """Rows of several shapes: peaked, flat, with ties, and with tokens that are gone."""
    rng = np.random.default_rng(7)
    for index in range(count):
        row = rng.standard_normal(width) * rng.choice([0.05, 1, 4])
        if index % 3 == 1:
            row = np.round(row)
        if index % 4 == 1:
            row[rng.random(width) < 0.9] = INF
        yield row.astype(np.float32)


def of_probs(*probs):
    return np.log(np.asarray(probs))


# ---------------------------------------------------------------------- as llama.cpp's own tests


@pytest.mark.parametrize(
    ("probs", "typical_p", "kept"),
    [((0.97, 0.01, 0.01, 0.01), 0.5, [0]), ((0.4, 0.2, 0.2, 0.2), 0.5, [1, 2, 3])],
)
def test_typical_p_on_the_rows_of_llama_cpp(probs, typical_p, kept):
    assert support(applied(TypicalP(), of_probs(*probs), typical_p=typical_p)) == kept


@pytest.mark.parametrize(("n", "kept"), [(1.0, [2, 3]), (0.0, [0, 1, 2, 3]), (3.0, [0, 1, 2, 3])])
def test_top_n_sigma_on_the_rows_of_llama_cpp(n, kept):
    assert support(applied(TopNSigma(), of_probs(0.1, 0.2, 0.3, 0.4), top_n_sigma=n)) == kept


@pytest.mark.parametrize(
    ("threshold", "kept"), [(0.09, [3]), (0.19, [2, 3]), (0.29, [1, 2, 3]), (0.39, [0, 1, 2, 3])]
)
def test_xtc_on_the_rows_of_llama_cpp(threshold, kept):
    row = of_probs(0.4, 0.3, 0.2, 0.1)
    got = applied(Xtc(), row, xtc_probability=0.99, xtc_threshold=threshold)
    assert support(got) == kept


# ---------------------------------------------------------------------- beside plain code


@pytest.mark.parametrize("typical_p", [0.0501, 0.5001, 0.9001, 0.9991])
def test_typical_p_keeps_what_the_sorted_way_keeps(typical_p):
    for row in random_rows():
        want = support(expected.typical_p(row, typical_p))
        assert support(applied(TypicalP(), row, typical_p=typical_p)) == want


def test_typical_p_leaves_the_likeliest_out_where_it_is_no_typical_one():
    got = applied(TypicalP(), of_probs(0.3, *[0.01] * 70), typical_p=0.195)
    assert support(got) == list(range(1, 21))


@pytest.mark.parametrize("n", [0.01, 0.5, 1.0, 2.0])
def test_top_n_sigma_keeps_what_the_plain_way_keeps(n):
    for row in random_rows():
        assert support(applied(TopNSigma(), row, top_n_sigma=n)) == support(
            expected.top_n_sigma(row, n)
        )


@pytest.mark.parametrize("tau", [0.001, 3.0, 10.0, 200.0])
def test_min_k_keeps_what_the_sorted_way_keeps(tau):
    for row in random_rows():
        assert support(applied(MinK(), row, min_k=tau)) == support(expected.min_k(row, tau))


def test_min_k_finds_a_cliff_behind_hundreds_of_tokens():
    row = np.concatenate((np.full(700, 10.0), np.linspace(5, 4.9, 900)))
    row[:700] -= np.arange(700) * 1e-5
    assert support(applied(MinK(), row, min_k=1e-6)) == list(range(700))


def test_min_k_cuts_at_the_same_rank_whatever_the_scale():
    for row in random_rows():
        counts = {len(support(applied(MinK(), row * s, min_k=1e-6))) for s in (0.25, 1, 4)}
        assert len(counts) == 1


@pytest.mark.parametrize("tau", [2.5, 4.0])
def test_min_k_of_flat_logits_keeps_more(tau):
    row = np.array([1.0, 0.5, 0.4, 0.3, 0.2, 0.0])
    assert support(applied(MinK(), row, min_k=tau)) == list(range(math.floor(tau)))


@pytest.mark.parametrize("threshold", [0.0, 0.001, 0.01, 0.1, 0.5])
def test_xtc_keeps_what_the_sorted_way_keeps(threshold):
    for row in random_rows():
        got = applied(Xtc(), row, xtc_probability=1.0, xtc_threshold=threshold)
        assert support(got) == support(expected.xtc(row, 1.0, threshold, 0.0))


@pytest.mark.parametrize("dice", [0.0, 0.2999, 0.3, 0.9])
def test_xtc_happens_where_the_noise_is_below_its_probability(dice):
    row = of_probs(0.4, 0.3, 0.2, 0.1)
    got = applied(Xtc(), row, dice=dice, xtc_probability=0.3, xtc_threshold=0.15)
    assert support(got) == ([2, 3] if dice < 0.3 else [0, 1, 2, 3])


def test_xtc_asks_for_noise_of_its_own_and_happens_as_often_as_it_says():
    row = of_probs(0.4, 0.3, 0.2, 0.1)
    params = SamplingParams(extra_args={"xtc_probability": 0.25, "xtc_threshold": 0.1})
    purposes, count = set(), 0
    for position in range(4000):

        def noise(purpose, position=position):
            purposes.add(purpose)
            return uniform(11, position, 0, purpose)

        x = torch.tensor(row, dtype=torch.float32)
        Xtc().apply(x, SamplingRow(params, (), (), uniform=noise))
        count += int(x[0] == INF)
    assert purposes == {XTC_PURPOSE}
    assert XTC_PURPOSE != 0
    assert abs(count - 1000) < 4 * math.sqrt(4000 * 0.25 * 0.75)


@pytest.mark.parametrize("args", [{"xtc_threshold": 0.6}, {"xtc_probability": 0.0}])
def test_an_xtc_without_effect_asks_for_no_noise(args):
    row = SamplingRow(SamplingParams(extra_args={"xtc_probability": 1.0} | args), (), ())
    x = torch.zeros(4)
    Xtc().apply(x, row)  # the noise of this row raises
    assert x.tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("stage", "args"),
    [
        (TypicalP(), {"typical_p": 0.3}),
        (TopNSigma(), {"top_n_sigma": 0.1}),
        (MinK(), {"min_k": 1e-9}),
        (Xtc(), {"xtc_probability": 1.0, "xtc_threshold": 0.0}),
    ],
    ids=lambda value: type(value).__name__,
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_values_that_stay_are_not_touched(stage, args, data):
    values = st.floats(-30, 30, width=32)
    row = np.array(data.draw(st.lists(values, min_size=1, max_size=40)), dtype=np.float32)
    got = applied(stage, row, **args)
    kept = got > INF
    assert kept.any()
    assert np.array_equal(got[kept], row[kept])


def test_a_large_vocabulary_keeps_what_the_sorted_way_keeps():
    rng = np.random.default_rng(3)
    row = (np.sort(rng.gumbel(size=20_000)) * 1.5).astype(np.float32)
    rng.shuffle(row)
    for stage, args, want in (
        (TypicalP(), {"typical_p": 0.92}, expected.typical_p(row, 0.92)),
        (MinK(), {"min_k": 3.0}, expected.min_k(row, 3.0)),
        (TopNSigma(), {"top_n_sigma": 1.5}, expected.top_n_sigma(row, 1.5)),
    ):
        assert support(applied(stage, row, **args)) == support(want)
