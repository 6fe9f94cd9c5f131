"""Philox against the known answers of Random123, and uniforms against their scalar twins."""

from __future__ import annotations

import numpy as np
import pytest

from octavo_kernels.reference.noise import (
    level_uniforms,
    philox,
    philox_scalar,
    uniform,
    uniforms,
)

# `philox4x32 10` of Random123's kat_vectors: counter, key, hash
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        0xFFFFFFFF_FFFFFFFF,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0_A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(counter, key, words):
    assert philox_scalar(counter, key) == words
    hashed = philox(np.array(counter, dtype=np.uint64)[:, None], np.array([key], dtype=np.uint64))
    assert hashed[:, 0].tolist() == list(words)


def test_uniforms_equal_their_scalar_twin_at_any_number_of_rows():
    rng = np.random.default_rng(5)
    seeds = rng.integers(0, 2**64, 300, dtype=np.uint64)
    positions = rng.integers(0, 2**32, 300)
    choices = rng.integers(0, 128, 300)
    batch = uniforms(seeds, positions, choices, 3)
    twin = [
        uniform(*row, 3)
        for row in zip(seeds.tolist(), positions.tolist(), choices.tolist(), strict=True)
    ]
    assert batch.dtype == np.float64
    assert batch.tolist() == twin
    for count in (0, 1, 2, 3, 4, 64):
        part = uniforms(seeds[:count], positions[:count], choices[:count], 3)
        assert part.tolist() == twin[:count]


def test_each_of_seed_position_choice_and_purpose_changes_the_noise():
    base = (7, 3, 1, 0)
    others = {uniform(*base)}
    for i in range(4):
        changed = list(base)
        changed[i] += 1
        others.add(uniform(*changed))
    assert len(others) == 5
    assert uniform(2**40 + 7, 3, 1, 0) not in others  # the seed's upper half counts


def test_uniforms_fill_the_unit_interval_evenly():
    count = 20_000
    zeros = np.zeros(count, dtype=np.int64)
    numbers = uniforms(np.full(count, 99, dtype=np.uint64), np.arange(count), zeros, 0)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    observed = np.bincount((numbers * 100).astype(int), minlength=100)
    expected = count / 100
    # chi-square of 99 degrees of freedom stays below 149 with probability 0.999
    assert ((observed - expected) ** 2 / expected).sum() < 149
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


def test_noise_has_53_bits():
    scaled = np.array([uniform(seed, 0, 0, 0) for seed in range(200)]) * 2.0**53
    assert (scaled == np.floor(scaled)).all()
    assert (scaled.astype(np.int64) & 1).any()


def level_by_hand(number, level):
    words = philox_scalar((level // 2, 0, 0, 1), int(number * 2**53))[2 * (level % 2) :]
    return ((words[0] >> 5) * 2**26 + (words[1] >> 6)) / 2**53


@pytest.mark.parametrize("num_levels", [0, 1, 2, 15, 16, 18])
def test_noise_of_levels_is_the_hash_that_the_docstring_says(num_levels):
    numbers = np.append(np.random.default_rng(2).random(30), [0.0, 2.0**-53, np.nextafter(1, 0)])
    levels = level_uniforms(numbers, num_levels)
    assert levels.shape == (33, num_levels)
    wanted = [[level_by_hand(u, level) for level in range(num_levels)] for u in numbers.tolist()]
    assert levels.tolist() == wanted
    for i in range(33):
        assert level_uniforms(numbers[i : i + 1], num_levels).tolist() == wanted[i : i + 1]


def test_noise_of_levels_does_not_move():
    """A seeded text of today is that of tomorrow: numbers that any other implementation gives."""
    levels = level_uniforms(np.array([uniform(1, 2, 3, 0)]), 4)
    assert levels[0].tolist() == [
        0.14167078317237092,
        0.774991025305667,
        0.4722479134175145,
        0.5564248304641228,
    ]


def test_levels_are_even_and_independent_of_each_other_and_of_their_row():
    numbers = uniforms(
        np.arange(4000, dtype=np.uint64), np.zeros(4000, int), np.zeros(4000, int), 0
    )
    levels = level_uniforms(numbers, 16)
    for level in levels.T:
        observed = np.bincount((level * 50).astype(int), minlength=50)
        # chi-square of 49 degrees of freedom stays below 94 with probability 0.9999
        assert ((observed - 80) ** 2 / 80).sum() < 94
    correlations = np.corrcoef(np.column_stack((numbers, levels)), rowvar=False)
    # 136 of them, each with a deviation of 0.016
    assert np.abs(correlations - np.eye(17)).max() < 0.065
