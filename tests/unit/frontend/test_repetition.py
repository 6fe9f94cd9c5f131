"""A text that goes round in circles is noticed at the token at which it does, by vLLM's rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import RequestError
from octavo.frontend.repetition import RepetitionChecker
from octavo.repetition import RepetitionDetectionParams


def is_repeated(ids, params):
    """Say plainly whether a pattern stands so many times at the end."""
    for size in range(max(1, params.min_pattern_size), params.max_pattern_size + 1):
        pattern, num = ids[-size:], size * params.min_count
        if len(ids) >= num and ids[-num:] == pattern * params.min_count:
            return True
    return False


@given(
    st.lists(st.integers(0, 2), max_size=60),
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(2, 4),
)
def test_it_is_noticed_exactly_when_it_is_so(ids, most, least, count):
    params = RepetitionDetectionParams(most, min(least, most), count)
    checker = RepetitionChecker(params)

    told = [checker.push(token_id) for token_id in ids]

    assert told == [is_repeated(ids[: i + 1], params) for i in range(len(ids))]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_pattern_size": -1}, "max_pattern_size must be from 0 to 1024, not -1"),
        ({"max_pattern_size": 1025, "min_count": 2}, "max_pattern_size must be from 0 to 1024"),
        ({"max_pattern_size": 2, "min_pattern_size": 3}, "from 0 to max_pattern_size \\(2\\)"),
        ({"max_pattern_size": 2, "min_count": 1}, "min_count must be at least 2, not 1"),
        ({"max_pattern_size": 2, "min_count": 2.5}, "min_count must be an integer, not 2.5"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, message):
    with pytest.raises(RequestError, match=message) as caught:
        RepetitionDetectionParams(**fields)
    assert caught.value.param == "repetition_detection"
