"""Log-probabilities by the CPU kernels, against log-softmax in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cpu_samplers import ARCHITECTURES, random_logits, sampler_of
from octavo_kernels.reference import logprobs as reference_logprobs


@pytest.fixture(params=ARCHITECTURES)
def sampler(request):
    """A sampler of each variant of the kernels."""
    return sampler_of(request.param)


@pytest.mark.parametrize("width", [1, 7, 300, 5000, 20_000])
def test_logprobs_are_log_softmax_sorted(sampler, width):
    rng = np.random.default_rng(width)
    x = random_logits(20, width)
    rows, token_ids = rng.integers(0, 20, 25), rng.integers(0, width, 25)
    num_top = rng.choice([0, 1, 2, 5, 20, 100, 1000, -1], 25)
    result = sampler.logprobs(x, rows, token_ids, num_top, 2)
    expected = torch.log_softmax(x.double(), -1).numpy()
    numbers = x.numpy()
    for i, (row, token_id) in enumerate(zip(rows, token_ids, strict=True)):
        np.testing.assert_allclose(result.chosen[i], expected[row, token_id], rtol=2e-6, atol=2e-6)
        assert result.ranks[i] == np.count_nonzero(numbers[row] > numbers[row, token_id]) + 1
        size = width if num_top[i] < 0 else min(num_top[i], width)
        order = np.lexsort((np.arange(width), -numbers[row]))[:size]
        assert result.top_ids[i].tolist() == order.tolist()
        np.testing.assert_allclose(
            result.top_logprobs[i], expected[row, order], rtol=2e-6, atol=2e-6
        )
    reference = reference_logprobs.logprobs(x, rows, token_ids, num_top)
    for name in ("chosen", "ranks"):
        assert getattr(result, name).dtype == getattr(reference, name).dtype
    for name in ("top_ids", "top_logprobs"):
        assert getattr(result, name)[0].dtype == getattr(reference, name)[0].dtype


def test_logprobs_of_a_row_do_not_depend_on_the_others(sampler):
    x = torch.randn(30, 50_257, generator=torch.Generator().manual_seed(0)) * 4
    rows, token_ids, num_top = np.arange(30), np.arange(30) * 100, np.full(30, 5)
    batch = sampler.logprobs(x, rows, token_ids, num_top, 1)
    for i in (0, 7, 8, 29):
        for num_threads in (1, 2, 5):
            alone = sampler.logprobs(
                x[i : i + 1], rows[:1], token_ids[i : i + 1], num_top[:1], num_threads
            )
            assert alone.chosen[0] == batch.chosen[i]
            assert alone.ranks[0] == batch.ranks[i]
            assert alone.top_logprobs[0].tolist() == batch.top_logprobs[i].tolist()
            assert alone.top_ids[0].tolist() == batch.top_ids[i].tolist()


def test_logprobs_of_bad_rows_are_nan_and_leave_the_others_alone(sampler):
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(1))
    wanted = np.arange(4), np.arange(4), np.full(4, 3)
    clean = sampler.logprobs(x, *wanted, 2)
    x[1, 50], x[2], x[3, 60] = math.nan, -math.inf, math.inf
    result = sampler.logprobs(x, *wanted, 2)
    assert np.isnan(result.chosen[1:]).all()
    assert [len(ids) for ids in result.top_ids] == [3] * 4
    assert all(np.isnan(values).all() for values in result.top_logprobs[1:])
    assert result.chosen[0] == clean.chosen[0]
    assert result.top_ids[0].tolist() == clean.top_ids[0].tolist()


def test_no_wanted_rows_give_nothing(sampler):
    nothing = np.empty(0, dtype=np.int64)
    result = sampler.logprobs(torch.randn(2, 10), nothing, nothing, nothing, 2)
    assert len(result.chosen) == len(result.ranks) == len(result.top_ids) == 0


@pytest.mark.parametrize(("row", "token_id"), [(-1, 0), (2, 0), (0, -1), (0, 10)])
def test_logprobs_of_what_there_is_not_are_refused(sampler, row, token_id):
    with pytest.raises(ValueError, match="must be from 0 up to"):
        sampler.logprobs(torch.randn(2, 10), np.array([row]), np.array([token_id]), np.zeros(1), 2)
