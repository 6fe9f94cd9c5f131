"""Sampling against a brute-force sort in float64: supports, draws, stability, independence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from descent_by_hand import drawn_by_hand
from octavo_kernels.reference.candidates import likeliest
from octavo_kernels.reference.noise import uniforms as hashed
from octavo_kernels.reference.sampling import SamplingRows, sample
from one_thread import one_thread_fixture


@pytest.fixture(autouse=True)
def _one_thread():
    yield from one_thread_fixture()


def noise_of(count, seed=0):
    """Return numbers as draws get them: those of one seed's positions."""
    zeros = np.zeros(count, dtype=np.int64)
    return hashed(np.full(count, seed, dtype=np.uint64), np.arange(count), zeros, 0)


def rows_of(uniforms, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    uniforms = np.atleast_1d(np.asarray(uniforms, dtype=np.float64))
    count = len(uniforms)
    return SamplingRows(
        temperature=np.full(count, temperature, dtype=np.float32),
        top_k=np.full(count, top_k, dtype=np.int32),
        top_p=np.full(count, top_p, dtype=np.float64),
        min_p=np.full(count, min_p, dtype=np.float64),
        uniforms=uniforms,
    )


def brute_force(x, rows, i):
    """Return the support of row i, ascending, and the token drawn, by the rule's own words."""
    x = x.astype(np.float64)
    weights = np.exp((x - x.max()) / float(rows.temperature[i]))
    order = np.lexsort((np.arange(len(x)), -x))
    kept = [j for j in order if x[j] > -math.inf and weights[j] >= rows.min_p[i]]
    if rows.top_k[i] > 0:
        kept = kept[: rows.top_k[i]]
    if rows.top_p[i] < 1:
        sums = np.cumsum(weights[kept])
        kept = kept[: int(np.count_nonzero(sums < rows.top_p[i] * sums[-1])) + 1]
    support = np.sort(np.array(kept))
    left = np.zeros(len(x))
    left[support] = weights[support]
    return support, drawn_by_hand(left, rows.uniforms[i])


def support_of(x, count=4000, **filters):
    """Return the ids drawn from one row by so many numbers."""
    uniforms = noise_of(count)
    logits = torch.from_numpy(np.tile(np.asarray(x, dtype=np.float32), (count, 1)))
    ids, is_bad = sample(logits, rows_of(uniforms, **filters))
    assert not is_bad.any()
    return sorted(set(ids.tolist()))


FILTERS = [
    {},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 5},
    {"top_k": 40, "top_p": 0.8},
    {"min_p": 0.05},
    {"min_p": 0.02, "top_p": 0.9},
    {"min_p": 0.02, "top_p": 0.9, "top_k": 12},
    {"top_k": 300},
    {"top_k": 700, "top_p": 0.95},
    {"temperature": 2.0, "top_p": 0.99, "min_p": 0.001},
    {"min_p": 1e-6},
    {"temperature": 1e-3, "top_p": 0.5},
    {"temperature": 1e4, "top_p": 0.3},
    {"top_k": 10**6},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("width", [3, 50, 257, 1000, 9001, 12345])
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_draws_are_those_of_brute_force(width, scale, filters):
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((6, width)) * scale).astype(np.float32)
    x[1::2] = np.round(x[1::2])  # many ties
    x[:, rng.integers(0, width)] = -math.inf
    rows = rows_of(rng.random(6), **filters)
    ids, is_bad = sample(torch.from_numpy(x), rows)
    assert not is_bad.any()
    assert ids.tolist() == [brute_force(x[i], rows, i)[1] for i in range(6)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 1}, [1]),
        ({"top_k": 3}, [0, 1, 2]),  # 0, 2 and 4 tie: the lower ids first
        ({"top_k": 4}, [0, 1, 2, 4]),
        ({"top_p": 0.39}, [1]),
        ({"top_p": 0.41}, [0, 1]),
        ({"top_p": 0.61}, [0, 1, 2]),
        ({"top_p": 0.95}, [0, 1, 2, 4]),
        ({"top_p": 0.999}, [0, 1, 2, 3, 4, 5]),
        ({"min_p": 0.45}, [0, 1, 2, 4]),
        ({"min_p": 1.0}, [1]),
        # of what top-k leaves, the likelier one is 0.676
        ({"top_k": 2, "top_p": 0.67}, [1]),
        ({"top_k": 2, "top_p": 0.68}, [0, 1]),
        # of what min-p leaves, in all 1.0 - 0.026
        ({"min_p": 0.3, "top_p": 0.405}, [1]),
        ({"min_p": 0.3, "top_p": 0.42}, [0, 1]),
    ],
    ids=str,
)
def test_exact_supports(filters, expected):
    probabilities = np.array([0.2, 0.4, 0.2, 0.016, 0.2, 0.01])
    probabilities[[0, 2, 4]] -= 0.026 / 3
    assert support_of(np.log(probabilities), **filters) == expected


@pytest.mark.parametrize("width", [10, 3000, 20000])
def test_equal_logits_give_the_lowest_ids(width):
    x = np.zeros(width, dtype=np.float32)
    for kept in (3, 7):
        assert support_of(x, count=200, top_p=kept / 10) == support_of(
            x, count=200, top_k=kept * width // 10
        )
        drawn = support_of(x, count=200, top_k=kept * width // 10)
        assert max(drawn) < kept * width // 10
    assert support_of(np.zeros(10), top_p=0.3) == [0, 1, 2]


def test_greedy_is_the_first_of_the_largest():
    x = torch.zeros(4, 50_000)
    x[0, [7, 40_000]] = 3.0
    x[1, 49_999] = 1e-6
    x[2] = -math.inf
    x[2, 123] = -5.0
    rows = rows_of([0.99] * 4, temperature=0.0, top_k=2, top_p=0.1, min_p=0.5)
    ids, is_bad = sample(x, rows)
    assert ids.tolist() == [7, 49_999, 123, 0]
    assert not is_bad.any()


@pytest.mark.parametrize("filters", [{"temperature": 0.0}, *FILTERS], ids=str)
def test_bad_rows_are_reported_and_leave_the_others_alone(filters):
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.standard_normal((6, 6000)).astype(np.float32) * 2)
    rows = rows_of(rng.random(6), **filters)
    clean, _ = sample(x, rows)
    x[1, 77] = math.nan
    x[2] = -math.inf
    x[3, 5] = math.inf
    x[4] = math.nan
    ids, is_bad = sample(x, rows)
    assert is_bad.tolist() == [False, True, True, True, True, False]
    assert ids.tolist() == [clean[0], 0, 0, 0, 0, clean[5]]


@pytest.mark.parametrize(("width", "count"), [(300, 40), (12_345, 20), (50_257, 10)])
def test_a_row_alone_equals_the_row_in_any_batch(width, count):
    torch.set_num_threads(2)  # a sum over one row may be split between threads
    rng = np.random.default_rng(9)
    x = (rng.standard_normal((count, width)) * rng.choice([0.3, 2, 6], (count, 1))).astype("f4")
    x[::4] = np.round(x[::4])
    rows = SamplingRows(
        temperature=rng.choice([0, 0.5, 1, 1.7], count).astype(np.float32),
        top_k=rng.choice([0, 0, 5, 50, 400], count).astype(np.int32),
        top_p=rng.choice([1, 1, 0.5, 0.95], count),
        min_p=rng.choice([0, 0, 0.01], count),
        uniforms=rng.random(count),
    )
    logits = torch.from_numpy(x)
    ids, _ = sample(logits, rows)
    for size in (1, 3, 7):
        index = rng.permutation(count)
        for start in range(0, count, size):
            part = index[start : start + size]
            alone, _ = sample(logits[torch.from_numpy(part)], rows.take(part))
            assert alone.tolist() == ids[part].tolist()


@pytest.mark.parametrize(
    "filters",
    [{}, {"temperature": 0.6}, {"top_k": 12}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 500}],
    ids=str,
)
def test_draws_follow_the_distribution(filters):
    width, count = 600, 8000
    x = (np.random.default_rng(1).standard_normal(width) * 2).astype(np.float32)
    uniforms = noise_of(count)
    observed = np.zeros(width)
    for part in np.split(uniforms, 8):
        logits = torch.from_numpy(np.tile(x, (len(part), 1)))
        observed += np.bincount(sample(logits, rows_of(part, **filters))[0], minlength=width)
    rows = rows_of([0.0], **filters)
    support, _ = brute_force(x, rows, 0)
    assert observed[np.setdiff1d(np.arange(width), support)].sum() == 0
    weights = np.exp((x[support].astype(float) - x.max()) / float(rows.temperature[0]))
    expected = weights / weights.sum() * count
    is_common = expected >= 5
    statistic = ((observed[support] - expected)[is_common] ** 2 / expected[is_common]).sum()
    freedom = is_common.sum()
    # the statistic's mean is its freedom and its variance twice that: five deviations
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 50.0, 1e30])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 20}, {"top_k": 2000}], ids=str)
def test_tiny_and_huge_temperatures(temperature, filters):
    x = np.linspace(-30, 30, 3000, dtype=np.float32)
    x[10:20] = -math.inf
    drawn = support_of(x, count=400, temperature=temperature, **filters)
    if temperature < 1:
        assert drawn[-1] == 2999
        assert x[drawn[0]] > 29.9
    else:
        assert len(drawn) > 1
        assert not set(range(10, 20)) & set(drawn)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_masked_tokens_are_never_drawn(filters):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((64, 9000)).astype(np.float32)
    is_masked = rng.random((64, 9000)) < 0.999
    is_masked[:, 17] = False
    x[is_masked] = -math.inf
    x[0, np.arange(9000) != 5] = -math.inf
    x[0, 5] = -80.0
    uniforms = rng.random(64)
    uniforms[:4] = [0.0, np.nextafter(1, 0), np.nextafter(1, 0), 0.0]
    ids, is_bad = sample(torch.from_numpy(x), rows_of(uniforms, **filters))
    assert not is_bad.any()
    assert (x[np.arange(64), ids] > -math.inf).all()
    assert ids[0] == 5


def test_logits_are_left_as_they_are():
    x = torch.randn(9, 5000)
    before = x.clone()
    rows = rows_of(np.linspace(0, 0.9, 9), top_p=0.9)
    rows.top_k[3:6] = 600
    sample(x, rows)
    assert torch.equal(x, before)


@pytest.mark.parametrize("width", [5, 255, 256, 257, 4097, 8192, 10_001])
@pytest.mark.parametrize("levels", [1, 40, None])
def test_candidates_are_what_a_sort_finds(width, levels):
    rng = np.random.default_rng(width)
    x = rng.standard_normal((5, width)).astype(np.float32)
    if levels is not None:
        x = np.round(x * levels / 4) * np.float32(4 / levels)  # ties, and -0.0 beside 0.0
    x[4, : width - 3] = -math.inf
    found = likeliest(torch.from_numpy(x), 256)
    for row in range(5):
        known = found.known[row]
        order = np.lexsort((np.arange(width), -x[row]))[:known]
        assert found.ids[row, :known].tolist() == order.tolist()
        assert (found.values[row, :known] == x[row, order]).all()
        if found.is_complete[row]:
            assert known == np.count_nonzero(x[row] > -math.inf)
    if levels is None:
        assert (found.known[:4] == min(width, 255 if width > 256 else 256)).all()
    assert found.is_complete[4]  # three finite values among so many
