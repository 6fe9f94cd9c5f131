"""Draws by the CPU kernels: the reference's ids, exact supports, the same bits in any company."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_samplers import (
    ARCHITECTURES,
    mixed_rows,
    noise_of,
    random_logits,
    rows_of,
    sampler_of,
)
from descent_by_hand import misfit
from octavo_kernels.cpu.sampling_edits import SamplingEdits
from octavo_kernels.reference import noise, sampling

#: on both sides of a vector, of a group, of a block, and of the pieces of a row
WIDTHS = [1, 2, 7, 16, 63, 64, 65, 255, 256, 257, 1000, 4097, 12_345, 49_152]
FILTERS = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 40, "top_p": 0.8},
    {"min_p": 0.05},
    {"min_p": 0.02, "top_p": 0.9, "top_k": 12},
    {"top_k": 700, "top_p": 0.95},
    {"top_k": 5000},
    {"temperature": 2.0, "top_p": 0.99, "min_p": 0.001},
    {"min_p": 1e-6},
    {"min_p": 1.0},
    {"top_p": 0.0},
    {"top_p": 1 - 1e-9},
    {"temperature": 1e-3, "top_p": 0.5},
    {"temperature": 1e4, "top_p": 0.3},
    {"top_k": 10**6},
]


@pytest.fixture(params=ARCHITECTURES)
def sampler(request):
    """A sampler of each variant of the kernels."""
    return sampler_of(request.param)


def draw(sampler, x, rows, num_threads=2):
    return sampler.sample(x, rows, SamplingEdits(), num_threads)


def assert_alike(
    x: torch.Tensor, rows: sampling.SamplingRows, ids: np.ndarray, expected: np.ndarray
):
    """Ids are the reference's, but where a number lies within rounding of its level's ratio."""
    for row in np.flatnonzero(ids != expected).tolist():
        one = x[row].double().numpy()
        weights = np.exp((one - one.max()) / float(rows.temperature[row]))
        kept = kept_by_hand(one, weights, rows, row)
        assert kept[ids[row]], (row, ids[row], expected[row])
        assert misfit(weights * kept, float(rows.uniforms[row]), int(ids[row])) < 1e-6


def kept_by_hand(x, weights, rows, row) -> np.ndarray:
    order = np.lexsort((np.arange(len(x)), -x))
    order = order[(x[order] > -math.inf) & (weights[order] >= rows.min_p[row])]
    if rows.top_k[row] > 0:
        order = order[: rows.top_k[row]]
    if rows.top_p[row] < 1:
        sums = np.cumsum(weights[order])
        order = order[: int(np.count_nonzero(sums < rows.top_p[row] * sums[-1])) + 1]
    kept = np.zeros(len(x), dtype=np.bool_)
    kept[order] = True
    return kept


# ------------------------------------------------------------------------------------ draws


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_draws_are_those_of_the_reference(sampler, width, filters):
    x = random_logits(24, width)
    before = x.clone()
    rows = rows_of(noise_of(24, seed=width), **filters)
    expected, expected_bad = sampling.sample(x, rows)
    for num_threads in (1, 2):
        ids, is_bad = draw(sampler, x, rows, num_threads)
        assert is_bad.tolist() == expected_bad.tolist() == [False] * 24
        assert_alike(x, rows, ids, expected)
        assert x.equal(before)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_draws_of_any_rows_are_those_of_the_reference(architecture, data):
    sampler = sampler_of(architecture)
    width, count = data.draw(st.integers(1, 3000)), data.draw(st.integers(1, 40))
    seed = data.draw(st.integers(0, 2**32))
    x, rows = random_logits(count, width, seed), mixed_rows(count, seed)
    rows.temperature[: count // 2] = np.float32(data.draw(st.floats(1e-3, 100.0)))
    rows.top_k[count // 3 :] = data.draw(st.integers(-1, width + 1))
    rows.top_p[: count // 4] = data.draw(st.floats(0.0, 1.0))
    rows.min_p[count // 2 :] = data.draw(st.floats(0.0, 1.0))
    expected, _ = sampling.sample(x, rows)
    ids, is_bad = draw(sampler, x, rows)
    assert not is_bad.any()
    assert_alike(x, rows, ids, expected)


def test_rounding_moves_next_to_no_token(sampler):
    """Of 12,000 rows, at most one part in ten thousand may be drawn otherwise."""
    num_moved = 0
    for seed in range(60):
        x, rows = random_logits(200, 1500, seed), mixed_rows(200, seed)
        rows.temperature[:] = 0.8
        expected, _ = sampling.sample(x, rows)
        num_moved += np.count_nonzero(draw(sampler, x, rows)[0] != expected)
    assert num_moved <= 1


def support_of(sampler, x, count=4000, **filters) -> list[int]:
    """The ids drawn from one row by so many numbers."""
    logits = torch.as_tensor(x, dtype=torch.float32).expand(count, -1)
    ids, is_bad = draw(sampler, logits, rows_of(noise_of(count), **filters))
    assert not is_bad.any()
    return sorted(set(ids.tolist()))


@pytest.mark.parametrize("width", [300, 5000])
@pytest.mark.parametrize("top_k", [1, 2, 63, 64, 65, 128, 299])
def test_top_k_keeps_exactly_so_many(sampler, width, top_k):
    """At such a temperature all that is kept weighs the same."""
    rng = np.random.default_rng(top_k)
    x = rng.permutation(width).astype(np.float32) - width / 2
    expected = np.sort(np.argsort(-x)[:top_k]).tolist()
    assert support_of(sampler, x, temperature=1e30, top_k=top_k) == expected


@pytest.mark.parametrize("width", [300, 5000])
@pytest.mark.parametrize("top_p", [0.01, 0.049])
def test_top_p_keeps_the_smallest_set_that_reaches_it(sampler, width, top_p):
    rng = np.random.default_rng(width)
    x = (rng.permutation(width) / width).astype(np.float32)
    order = np.argsort(-x)
    sums = np.cumsum(np.exp(x[order].astype(np.float64)))
    size = np.count_nonzero(sums < top_p * sums[-1]) + 1
    assert support_of(sampler, x, top_p=top_p) == np.sort(order[:size]).tolist()


def test_min_p_keeps_what_weighs_as_much(sampler):
    x = np.log(np.linspace(1e-3, 1, 1000)).astype(np.float32)
    kept = np.flatnonzero(np.exp(x.astype(np.float64)) >= 0.9)
    assert support_of(sampler, x, min_p=0.9) == kept.tolist()
    assert support_of(sampler, x, min_p=1.0) == [999]


@pytest.mark.parametrize("width", [10, 3000, 20_000])
def test_equal_logits_are_kept_from_the_lowest_id_on(sampler, width):
    x = torch.zeros(width)
    x[::2] = -0.0
    for tenths in (3, 7):
        by_k = support_of(sampler, x, 400, top_k=tenths * width // 10)
        assert support_of(sampler, x, 400, top_p=tenths / 10) == by_k
        assert tenths * width // 10 * 0.97 - 1 <= by_k[-1] < tenths * width // 10
    # ties at the border of both filters
    assert support_of(sampler, x, top_k=8, top_p=0.5) == [0, 1, 2, 3]


def test_masked_tokens_are_never_drawn_even_where_all_else_weighs_nothing(sampler):
    x = torch.full((4, 9000), -math.inf)
    x[:, 5], x[:, 6] = -80.0, 80.0
    for temperature in (1e-30, 1.0, 1e30, 3e38):
        assert set(support_of(sampler, x[0], 200, temperature=temperature)) <= {5, 6}
    lowest = torch.full((9000,), torch.finfo(torch.float32).min)
    lowest[7] = -math.inf
    drawn = support_of(sampler, lowest, 4000)
    assert len(drawn) > 3000
    assert 7 not in drawn


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_bad_rows_are_told_and_leave_the_others_alone(sampler, filters, num_threads):
    x = torch.randn(6, 9000, generator=torch.Generator().manual_seed(3))
    rows = rows_of(noise_of(6), **filters)
    clean, _ = draw(sampler, x, rows)
    x[1, 77], x[3, 5] = math.nan, math.inf
    x[2], x[4] = -math.inf, math.nan
    ids, is_bad = draw(sampler, x, rows, num_threads)
    assert is_bad.tolist() == [False, True, True, True, True, False]
    assert ids.tolist() == [clean[0], 0, 0, 0, 0, clean[5]]


@pytest.mark.parametrize("place", [0, 15, 16, 63, 64, 200, 255, 256, 511, 512, 600, 601])
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
def test_a_bad_number_is_seen_anywhere(sampler, place, value):
    x = torch.randn(2, 602)
    x[1, place] = value
    assert draw(sampler, x, rows_of(noise_of(2)))[1].tolist() == [False, True]


@pytest.mark.parametrize(("width", "count"), [(300, 40), (12_345, 20), (50_257, 12)])
def test_a_row_alone_equals_the_row_in_any_batch(sampler, width, count):
    x, rows = random_logits(count, width), mixed_rows(count, seed=width)
    ids, _ = draw(sampler, x, rows, num_threads=1)
    rng = np.random.default_rng(1)
    for size in (1, 3, 7, 12):
        index = rng.permutation(count)
        for start in range(0, count, size):
            part = index[start : start + size]
            for num_threads in (1, 2, 5):
                alone, _ = draw(sampler, x[torch.from_numpy(part)], rows.take(part), num_threads)
                assert alone.tolist() == ids[part].tolist()


def test_rows_inside_wider_memory_and_a_large_vocabulary(sampler):
    memory = random_logits(3, 262_144 + 1000)
    x = memory[:, 300 : 300 + 262_144]
    memory[:, :300], memory[:, 300 + 262_144 :] = math.nan, math.nan
    for filters in FILTERS:
        rows = rows_of(noise_of(3), **filters)
        ids, is_bad = draw(sampler, x, rows)
        assert not is_bad.any()
        assert_alike(x, rows, ids, sampling.sample(x, rows)[0])


def test_calls_of_other_shapes_follow_one_another(sampler):
    for count, width in [(3, 100), (40, 100), (0, 100), (2, 5000), (1, 7), (300, 64)]:
        x, rows = random_logits(count, width), mixed_rows(count, seed=count)
        ids, is_bad = draw(sampler, x, rows)
        assert len(ids) == len(is_bad) == count
        assert_alike(x, rows, ids, sampling.sample(x, rows)[0] if count else ids)


@pytest.mark.parametrize(
    "logits",
    [torch.zeros(2, 8, dtype=torch.float64), torch.zeros(8, 2).T, torch.zeros(2, 0)],
    ids=["float64", "columns", "empty"],
)
def test_logits_that_the_kernels_cannot_read_are_refused(sampler, logits):
    with pytest.raises(ValueError, match=r"logits must be float32 \[rows, vocab\]"):
        draw(sampler, logits, rows_of(noise_of(len(logits))))


# ------------------------------------------------------------------------------------ noise


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_noise_is_that_of_the_reference(sampler, count):
    rng = np.random.default_rng(count)
    seeds = rng.integers(0, 2**64, count, dtype=np.uint64)
    positions, choices = rng.integers(-5, 2**40, (2, count))
    for purpose in (0, 7, 2**32 - 1):
        expected = noise.uniforms(seeds, positions, choices, purpose)
        assert sampler.uniforms(seeds, positions, choices, purpose).tolist() == expected.tolist()
