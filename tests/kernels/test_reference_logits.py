"""Log-probabilities and edits of logits against dense definitions in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from octavo_kernels.reference.edits import (
    PenaltyEntries,
    add_bias,
    apply_penalties,
    bad_word_bans,
    ban,
    keep_masked,
    keep_only,
)
from octavo_kernels.reference.logprobs import logprobs


def _ids(*values):
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("width", [7, 300, 20_000])
def test_logprobs_are_log_softmax_sorted(width):
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((20, width)) * 3).astype(np.float32)
    x[::2] = np.round(x[::2])  # ties
    x[:, 3] = -math.inf
    rows = rng.integers(0, 20, 25)
    token_ids = rng.integers(0, width, 25)
    num_top = rng.choice([0, 1, 2, 5, 20, 100, -1], 25)
    result = logprobs(torch.from_numpy(x), rows, token_ids, num_top)
    expected = torch.log_softmax(torch.from_numpy(x).double(), -1).numpy()
    for i, (row, token_id) in enumerate(zip(rows, token_ids, strict=True)):
        np.testing.assert_allclose(result.chosen[i], expected[row, token_id], atol=5e-6)
        assert result.ranks[i] == np.count_nonzero(x[row] > x[row, token_id]) + 1
        count = width if num_top[i] < 0 else min(num_top[i], width)
        order = np.lexsort((np.arange(width), -x[row]))[:count]
        assert result.top_ids[i].tolist() == order.tolist()
        np.testing.assert_allclose(result.top_logprobs[i], expected[row, order], atol=5e-6)
    assert result.chosen.dtype == np.float32
    assert result.ranks.dtype == np.int64


def test_logprobs_of_a_row_do_not_depend_on_the_others():
    x = torch.randn(30, 50_257, generator=torch.Generator().manual_seed(0)) * 4
    rows, token_ids, num_top = np.arange(30), np.arange(30) * 100, np.full(30, 5)
    batch = logprobs(x, rows, token_ids, num_top)
    for i in (0, 7, 8, 29):
        alone = logprobs(x[i : i + 1], _ids(0), token_ids[i : i + 1], num_top[:1])
        assert alone.chosen[0] == batch.chosen[i]
        assert alone.ranks[0] == batch.ranks[i]
        assert (alone.top_logprobs[0] == batch.top_logprobs[i]).all()
        assert (alone.top_ids[0] == batch.top_ids[i]).all()


def test_a_row_of_nan_gives_nan_and_leaves_the_others_alone():
    x = torch.randn(3, 1000)
    clean = logprobs(x, np.arange(3), _ids(1, 2, 3), _ids(2, 2, 2))
    x[1, 50] = math.nan
    result = logprobs(x, np.arange(3), _ids(1, 2, 3), _ids(2, 2, 2))
    assert np.isnan(result.chosen[1])
    assert len(result.top_ids[1]) == 2
    for i in (0, 2):
        assert result.chosen[i] == clean.chosen[i]
        assert (result.top_logprobs[i] == clean.top_logprobs[i]).all()


def test_no_wanted_rows_give_nothing():
    result = logprobs(torch.randn(2, 10), _ids(), _ids(), _ids())
    assert len(result.chosen) == len(result.ranks) == len(result.top_ids) == 0


def test_penalties_are_openai_and_ctrl_formulas():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 50)).astype(np.float32)
    x[0, 4] = -math.inf
    prompts = {0: [1, 2, 4], 2: [9]}
    outputs = {0: [2, 2, 7], 2: [9, 9, 30]}
    numbers = {0: (1.5, 0.25, -0.5), 2: (0.8, -1.0, 1.5)}
    expected = x.astype(np.float64)
    columns = []
    for row, (repetition, frequency, presence) in numbers.items():
        for token in sorted({*prompts[row], *outputs[row]}):
            value, count = expected[row, token], outputs[row].count(token)
            value = value / repetition if value > 0 else value * repetition
            value -= frequency * count + presence * (count > 0)
            expected[row, token] = value
            columns.append((row, token, count, repetition, frequency, presence))
    arrays = [np.array(column) for column in zip(*columns, strict=True)]
    entries = PenaltyEntries(
        *arrays[:2], arrays[2].astype(np.int32), *(a.astype(np.float32) for a in arrays[3:])
    )
    logits = torch.from_numpy(x)
    apply_penalties(logits, entries)
    torch.testing.assert_close(logits.double(), torch.from_numpy(expected), atol=1e-6, rtol=1e-6)


def test_sparse_edits_touch_what_they_name_alone():
    x = torch.zeros(3, 6)
    add_bias(x, _ids(0, 0, 2, 2), _ids(1, 3, 3, 3), np.array([2.5, -1, 4, 1], np.float32))
    assert x.tolist() == [[0, 2.5, 0, -1, 0, 0], [0] * 6, [0, 0, 0, 5, 0, 0]]
    ban(x, _ids(0, 1), _ids(1, 5))
    assert x[0].tolist() == [0, -math.inf, 0, -1, 0, 0]
    assert x[1].tolist() == [0, 0, 0, 0, 0, -math.inf]
    keep_only(x, 0, _ids(3, 1))
    assert x[0].tolist() == [-math.inf, -math.inf, -math.inf, -1, -math.inf, -math.inf]
    assert x[2].tolist() == [0, 0, 0, 5, 0, 0]


@pytest.mark.parametrize("token_id", [-1, 6, 10**9])
def test_ids_outside_the_vocabulary_are_refused_and_change_nothing(token_id):
    x = torch.zeros(2, 6)
    for edit in (
        lambda: ban(x, _ids(0), _ids(token_id)),
        lambda: add_bias(x, _ids(0), _ids(token_id), np.ones(1, np.float32)),
        lambda: keep_only(x, 0, _ids(token_id)),
    ):
        with pytest.raises(ValueError, match="token ids must be from 0 up to 6"):
            edit()
    assert not x.any()


@pytest.mark.parametrize(
    ("history", "words", "bans"),
    [
        ([], [[5]], [5]),
        ([1, 2], [[5], [6]], [5, 6]),
        ([1, 2], [[2, 7]], [7]),
        ([1, 2], [[1, 7]], []),
        ([1, 2], [[1, 2, 3], [0, 1, 2, 3], [2, 1]], [3, 1]),
        ([2], [[1, 2, 3]], []),
        ([4, 4], [[4, 4, 4]], [4]),
        ([1], [[]], []),
    ],
)
def test_bad_words_ban_the_id_that_would_complete_them(history, words, bans):
    assert bad_word_bans(history, words) == bans


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 100, 40_000])
def test_a_mask_keeps_the_tokens_whose_bits_are_set(vocab_size):
    generator = np.random.default_rng(vocab_size)
    x = torch.from_numpy(generator.normal(size=(3, vocab_size)).astype(np.float32))
    before = x.clone()
    mask = generator.integers(0, 2**32, -(-vocab_size // 32), dtype=np.uint32)
    kept = [bool(mask[t // 32] >> np.uint32(t % 32) & 1) for t in range(vocab_size)]

    keep_masked(x, 1, mask)

    expected = torch.where(torch.tensor(kept), before[1], -math.inf)
    assert torch.equal(x[1], expected)
    assert torch.equal(x[[0, 2]], before[[0, 2]])


def test_a_mask_leaves_nan_and_takes_infinities():
    x = torch.tensor([[math.nan, math.inf, -math.inf, math.inf]])
    keep_masked(x, 0, np.array([0b0011], dtype=np.uint32))

    assert math.isnan(x[0, 0])
    assert x[0, 1:].tolist() == [math.inf, -math.inf, -math.inf]


def test_a_mask_of_another_vocabulary_is_refused():
    with pytest.raises(ValueError, match="a mask of 33 tokens"):
        keep_masked(torch.zeros(1, 33), 0, np.zeros(1, dtype=np.uint32))
