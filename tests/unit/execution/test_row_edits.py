"""What parameters do to logits is worked out once for a request, and right at every step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.plan import RowSpec, RowStart
from octavo.execution.edits import RowEdits
from octavo.execution.rows import Rows
from octavo.interfaces.sampler import SamplingInputs
from octavo.sampling_params import SamplingParams


def spec_of(params, eos=(9,), words=()):
    return RowSpec(params, 0, 0, 1, eos_token_ids=eos, bad_words_ids=words)


def noted(edits, output_ids, index=0):
    empty = np.empty(0)
    inputs = SamplingInputs(empty, empty, empty, empty, empty)
    edits.note(index, output_ids, inputs)
    return inputs


def banned(edits, output_ids):
    found = noted(edits, output_ids).banned
    assert all(index == 0 and ids.dtype == np.int64 for index, ids in found)
    return sorted(i for _, ids in found for i in ids.tolist())


def test_allowed_ids_and_biases_are_the_same_arrays_at_every_step():
    edits = RowEdits(spec_of(SamplingParams(allowed_token_ids=[5, 3], logit_bias={7: 0.5, 1: -2})))

    first, later = noted(edits, [], index=2), noted(edits, [1, 2, 3], index=4)

    ((row, allowed),) = first.allowed
    ((bias_row, ids, adds),) = first.bias
    assert (row, allowed.tolist()) == (2, [5, 3])
    assert (bias_row, ids.tolist(), adds.tolist()) == (2, [7, 1], [0.5, -2.0])
    assert later.allowed[0][0] == 4
    assert later.allowed[0][1] is allowed
    assert later.bias[0][1] is ids
    assert first.banned == []


def test_ends_are_banned_until_the_minimum_is_there():
    edits = RowEdits(spec_of(SamplingParams(min_tokens=2, stop_token_ids=[4, 6])))

    assert [banned(edits, [1] * n) for n in range(4)] == [[4, 6, 9], [4, 6, 9], [], []]


@given(
    words=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), max_size=8),
    output_ids=st.lists(st.integers(0, 3), max_size=6),
)
def test_the_last_id_of_a_word_is_banned_after_its_other_ids(words, output_ids):
    edits = RowEdits(spec_of(SamplingParams(), words=tuple(words)))

    expected = [
        word[-1]
        for word in words
        if len(word) - 1 <= len(output_ids)
        and tuple(output_ids[len(output_ids) - len(word) + 1 :]) == word[:-1]
    ]
    assert banned(edits, output_ids) == sorted(expected)


@pytest.mark.parametrize(
    ("params", "words", "has_edits"),
    [
        ({}, (), False),
        ({"temperature": 0.5, "stop_token_ids": [1]}, (), False),
        ({"allowed_token_ids": [1]}, (), True),
        ({"logit_bias": {1: 1}}, (), True),
        ({"min_tokens": 1}, (), True),
        ({}, ((1,),), True),
        ({"repetition_penalty": 1.5}, (), True),
        ({"presence_penalty": 1}, (), True),
        ({"frequency_penalty": 1}, (), True),
        ({"logits_processors": [lambda _, logits: logits]}, (), True),
    ],
)
def test_a_row_knows_whether_its_logits_are_to_be_edited(params, words, has_edits):
    rows = Rows(2, 8, 1)
    rows.start(RowStart(1, "a", [1], spec_of(SamplingParams(**params), words=words)), None, None)

    assert rows.has_edits.tolist() == [False, has_edits]
    rows.end(1)
    assert not rows.has_edits.any()
    assert rows.edits == [None, None]


def test_choices_of_a_call_share_their_edits():
    rows = Rows(4, 8, 1)
    params = SamplingParams(logit_bias={1: 1.0})
    for row, one in enumerate((params, params, SamplingParams(logit_bias={1: 1.0}), params)):
        eos = () if row == 3 else (9,)
        rows.start(RowStart(row, str(row), [1], spec_of(one, eos=eos)), None, None)

    assert rows.edits[0] is rows.edits[1]
    assert len({id(one) for one in rows.edits}) == 3
