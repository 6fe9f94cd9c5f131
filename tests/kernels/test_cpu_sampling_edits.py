"""Edits of logits by the CPU kernels, bit for bit those of the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_samplers import ARCHITECTURES, noise_of, random_logits, rows_of, sampler_of
from octavo_kernels.cpu.sampling_edits import SamplingEdits
from octavo_kernels.reference import edits as reference_edits


@pytest.fixture(params=ARCHITECTURES)
def sampler(request):
    """A sampler of each variant of the kernels."""
    return sampler_of(request.param)


def edited(sampler, x: torch.Tensor, edits: SamplingEdits, num_threads: int = 2) -> torch.Tensor:
    out = x.clone()
    sampler.sample(out, rows_of(noise_of(len(x)), temperature=0.0), edits, num_threads)
    return out


def assert_same_bits(one: torch.Tensor, other: torch.Tensor) -> None:
    assert torch.equal(one.view(torch.int32), other.view(torch.int32))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_edits_are_those_of_the_reference_bit_for_bit(architecture, data):
    sampler = sampler_of(architecture)
    width, count = data.draw(st.integers(1, 700)), data.draw(st.integers(1, 24))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = random_logits(count, width, seed=width)
    edits, expected = SamplingEdits(), x.clone()
    for row in range(count):
        for kind in data.draw(st.sets(st.sampled_from(["keep", "add", "penalise", "ban"]))):
            ids = rng.permutation(width)[: rng.integers(0, width + 1)]
            edit_both(kind, ids, rng, (edits, row), expected)
        if data.draw(st.booleans()):
            mask = rng.integers(0, 2**32, -(-width // 32), dtype=np.uint32)
            mask[rng.random(len(mask)) < 0.3] = 2**32 - 1
            edits.keep_masked(row, mask)
            reference_edits.keep_masked(expected, row, mask)
    assert_same_bits(edited(sampler, x, edits), expected)


def edit_both(kind, ids, rng, edits: tuple[SamplingEdits, int], expected: torch.Tensor):
    """Note an edit of a row, and make it by the reference."""
    noted, row = edits
    rows = np.full(len(ids), row)
    if kind == "keep":
        noted.keep_only(row, ids)
        reference_edits.keep_only(expected, row, ids)
    elif kind == "ban":
        noted.ban(row, ids)
        reference_edits.ban(expected, rows, ids)
    elif kind == "add":
        adds = rng.standard_normal(len(ids)).astype(np.float32)
        noted.add(row, ids, adds)
        reference_edits.add_bias(expected, rows, ids, adds)
    else:
        counts = rng.integers(0, 4, len(ids)).astype(np.int32)
        strengths = rng.uniform(-2, 2, 3).astype(np.float32)
        noted.penalise(row, ids, counts, tuple(strengths.tolist()))
        columns = [np.full(len(ids), one) for one in strengths]
        entries = reference_edits.PenaltyEntries(rows, ids, counts, *columns)
        reference_edits.apply_penalties(expected, entries)


def test_adds_to_one_token_sum_up_and_kept_ids_may_repeat(sampler):
    x, edits = torch.zeros(2, 50), SamplingEdits()
    edits.add(1, [3, 3, 49], np.array([1.5, 2.0, -1.0], np.float32))
    edits.keep_only(0, [7, 7])
    out = edited(sampler, x, edits)
    assert out[1, [2, 3, 49]].tolist() == [0.0, 3.5, -1.0]
    assert torch.isfinite(out[0]).nonzero().tolist() == [[7]]
    edits.clear()
    assert edited(sampler, x, edits).equal(x)


def test_a_draw_follows_its_edits(sampler):
    x, edits = torch.zeros(12, 3000), SamplingEdits()
    for row in range(12):
        edits.add(row, [row, 2999], [5.0, 9.0])
        edits.ban(row, [2999])
    for count in (1, 12):
        rows = rows_of(noise_of(12), temperature=0.0).take(np.arange(count))
        for num_threads in (1, 2):
            ids, _ = sampler.sample(x[:count].clone(), rows, edits, num_threads)
            assert ids.tolist() == list(range(count))


def test_a_mask_leaves_nan_and_may_leave_nothing(sampler):
    x, edits = torch.zeros(3, 70), SamplingEdits()
    x[0, 5] = math.nan
    for row in range(2):
        edits.keep_masked(row, np.zeros(3, np.uint32))
    ids, is_bad = sampler.sample(x, rows_of(noise_of(3)), edits, 2)
    assert is_bad.tolist() == [True, True, False]
    assert ids[:2].tolist() == [0, 0]
    assert x[0].isnan().nonzero().tolist() == [[5]]
    assert x[1].max() == -math.inf


@pytest.mark.parametrize("token_id", [-1, 64, 2**40])
@pytest.mark.parametrize("num_rows", [1, 30])
def test_ids_outside_the_vocabulary_are_refused(sampler, token_id, num_rows):
    x = torch.zeros(num_rows, 64)
    for note in ("keep_only", "ban", "add", "penalise"):
        edits = SamplingEdits()
        more = {"add": ([1.0, 1.0],), "penalise": ([0, 1], (1.0, 0.0, 0.0))}.get(note, ())
        getattr(edits, note)(0, [3, token_id], *more)
        with pytest.raises(ValueError, match="token ids must be from 0 up to 64, not"):
            edited(sampler, x, edits)


def test_a_mask_of_another_vocabulary_is_refused(sampler):
    edits = SamplingEdits()
    edits.keep_masked(0, np.zeros(2, np.uint32))
    edits.keep_masked(1, np.zeros(1, np.uint32))
    with pytest.raises(ValueError, match="a mask of 33 tokens has not 1 words"):
        edited(sampler, torch.zeros(2, 33), edits)
