"""Draws by halving: the rule by hand, both ways to walk it, edges, and what rounding does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from descent_by_hand import descended
from octavo_kernels.reference.descent import (
    SUM_BLOCK,
    draw_from_candidates,
    draw_from_rows,
    num_levels,
)
from octavo_kernels.reference.noise import level_uniforms
from one_thread import one_thread_fixture

LAST = math.nextafter(1, 0)  # the largest number that noise can be


@pytest.fixture(autouse=True)
def _one_thread():
    yield from one_thread_fixture()


def wide(weights, noise):
    """Draw from whole rows of weights [rows, width]."""
    padded = np.zeros((len(weights), -(-weights.shape[1] // SUM_BLOCK) * SUM_BLOCK), np.float32)
    padded[:, : weights.shape[1]] = weights
    return draw_from_rows(torch.from_numpy(padded), noise).tolist()


def narrow(weights, noise):
    """Draw from the ids of each row that weigh anything, likeliest first as candidates come."""
    sizes = np.count_nonzero(weights > 0, axis=1)
    ids = np.argsort(-weights, axis=1, kind="stable")
    of_ids = np.take_along_axis(weights, ids, 1).astype(np.float64)
    return draw_from_candidates(ids, of_ids, sizes, noise).tolist()


def by_hand(weights, noise):
    rows = zip(weights.astype(np.float64), noise.tolist(), strict=True)
    return [descended(*row) for row in rows]


def test_levels_are_as_many_as_ids_can_be_halved():
    widths = [1, 2, 3, 4, 5, 255, 256, 257, 49_152, 65_536, 65_537, 151_936]
    assert [num_levels(width) for width in widths] == [0, 1, 2, 2, 3, 8, 8, 9, 16, 16, 17, 18]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whole_rows_and_candidates_are_drawn_alike_and_as_by_hand(data):
    """Weights are small integers, whose sums are exact in any order and in float32."""
    width = data.draw(st.sampled_from([1, 2, 3, 100, 255, 256, 257, 600, 1025, 5000]))
    count, seed = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 1000, (count, width)).astype(np.float32)
    weights[rng.random((count, width)) < data.draw(st.sampled_from([0, 0.5, 0.99, 1]))] = 0
    weights[np.arange(count), rng.integers(0, width, count)] += 1
    noise = level_uniforms(rng.random(count), num_levels(width))
    is_end = rng.random(noise.shape) < data.draw(st.sampled_from([0, 0.3]))
    noise[is_end] = rng.choice([0.0, LAST, 0.5], is_end.sum())
    wanted = by_hand(weights, noise)
    assert wide(weights, noise) == wanted
    assert narrow(weights, noise) == wanted
    assert (weights[np.arange(count), wanted] > 0).all()


@pytest.mark.parametrize("width", [5, 256, 300, 70_000])
def test_the_ends_of_the_noise_draw_the_ends_of_the_support(width):
    weights = np.zeros((2, width), np.float32)
    weights[:, [1, width // 2, width - 2]] = 1e-6, 1.0, 1e-30
    noise = np.array([[0.0], [LAST]]).repeat(num_levels(width), axis=1)
    assert narrow(weights, noise)[0] == wide(weights, noise)[0] == 1
    # what is absorbed by the sum of what lies before it weighs nothing
    assert narrow(weights, noise)[1] == wide(weights, noise)[1] == width // 2


def test_a_half_that_weighs_nothing_is_never_entered():
    for weight in (1.0, 0.1, 1e-40):
        for only in (0, 1, 255, 256, 511, 512, 998, 999):
            weights = np.zeros((1, 1000), np.float32)
            weights[0, only] = weight
            for die in (0.0, 0.5, LAST):
                noise = np.full((1, 10), die)
                assert wide(weights, noise) == narrow(weights, noise) == [only]
    # the smallest number there is, times any noise above a half, is itself
    tiny = np.zeros((1, 1000))
    tiny[0, 3:5] = math.ulp(0.0)
    assert narrow(tiny, np.full((1, 10), LAST)) == [4]


def test_rows_without_candidates_leave_the_others_alone():
    ids, weights = np.array([[7, 3], [2, 9]]), np.array([[1.0, 1.0], [1.0, 0.5]])
    noise = np.full((2, 4), 0.99)
    assert draw_from_candidates(ids, weights, np.array([2, 0]), noise).tolist() == [7, 0]
    assert draw_from_candidates(ids, weights, np.array([1, 2]), noise).tolist() == [7, 9]
    assert draw_from_candidates(ids, weights, np.array([0, 0]), noise).tolist() == [0, 0]


@pytest.mark.parametrize("draw", [wide, narrow])
def test_draws_are_in_proportion_to_the_weights(draw):
    """Chi-square of 20,000 draws, ids of any place and weight among 1000."""
    rng = np.random.default_rng(8)
    count, width = 20_000, 1000
    weights = np.zeros(width, np.float32)
    ids = rng.choice(width, 150, replace=False)
    weights[ids] = rng.exponential(size=150) ** 2
    observed = np.zeros(width)
    for numbers in np.split(rng.random(count), 20):
        rows = np.tile(weights, (len(numbers), 1))
        drawn = draw(rows, level_uniforms(numbers, num_levels(width)))
        observed += np.bincount(drawn, minlength=width)
    expected = weights.astype(float) / weights.sum(dtype=float) * count
    assert observed[weights == 0].sum() == 0
    is_common = expected >= 5
    statistic = ((observed - expected)[is_common] ** 2 / expected[is_common]).sum()
    freedom = is_common.sum()
    assert freedom > 80
    # the statistic's mean is its freedom and its variance twice that: four deviations
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_rounding_of_weights_moves_next_to_no_token():
    """20,000 draws from weights that differ by one part in a million: less than 0.01 % differ.

    By inverse CDF, one number against the sums of all ids before each, 0.2 % of these do.
    """
    rng = np.random.default_rng(6)
    count, width = 20_000, 49_152
    logits = -1.2 * np.log(np.arange(1, width + 1)) + rng.standard_normal(width)
    weights = np.exp(rng.permutation(logits))
    weights /= weights.max()
    noise = level_uniforms(rng.random(count), num_levels(width))
    num_moved = 0
    for part in np.split(noise, 200):
        moved = weights * (1 + 1e-6 * rng.standard_normal(width))
        pair = [
            draw_from_rows(
                torch.tensor(each, dtype=torch.float32).expand(100, -1).contiguous(), part
            )
            for each in (weights, moved)
        ]
        num_moved += np.count_nonzero(pair[0] != pair[1])
    assert num_moved < 2
