"""Prompt lookup: what is proposed, that it depends on the tokens alone, and what it costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config.resolve import resolve
from octavo.errors import ConfigError
from octavo_plugins.proposers.ngram import Ngram, NgramIndex, NgramOptions


@dataclass
class View:
    token_ids: list[int] = field(default_factory=list)
    request_id: str = "r"
    num_prompt_tokens: int = 0


def propose(ids, max_tokens=8, **options):
    return list(Ngram(NgramOptions(**options)).propose(View(list(ids)), max_tokens))


def expected(ids, max_tokens, low, high, num_drafts):
    """Search by definition: the longest match, the latest of those, then on and on from there."""
    limit = min(max_tokens, num_drafts)
    for length in range(high, low - 1, -1):
        suffix = ids[-length:]
        for end in range(len(ids) - 1, length - 1, -1):
            if length <= len(suffix) and ids[end - length : end] == suffix:
                matched = 0
                while matched < min(limit, end) and ids[end - 1 - matched] == ids[-1 - matched]:
                    matched += 1
                grown = list(ids)
                for i in range(matched):
                    grown.append(grown[end + i])
                return grown[len(ids) :]
    return []


@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    low=st.integers(1, 4),
    spread=st.integers(0, 3),
    num_drafts=st.integers(1, 9),
    max_tokens=st.integers(0, 9),
)
@settings(max_examples=300, deadline=None)
def test_it_proposes_what_the_definition_says(ids, low, spread, num_drafts, max_tokens):
    options = NgramOptions(min_ngram=low, max_ngram=low + spread, num_drafts=num_drafts)
    drafts = Ngram(options).propose(View(ids), max_tokens)

    assert list(drafts) == expected(ids, max_tokens, low, low + spread, num_drafts)


@given(
    ids=st.lists(st.integers(0, 3), min_size=2, max_size=40),
    cuts=st.lists(st.integers(1, 40), max_size=5),
)
@settings(max_examples=200, deadline=None)
def test_D1_drafts_depend_on_the_tokens_and_not_on_earlier_calls(ids, cuts):
    options = NgramOptions(min_ngram=1, max_ngram=3)
    grown, view = Ngram(options), View()
    for cut in [*sorted(cuts), len(ids)]:
        view.token_ids.extend(ids[len(view.token_ids) : cut])
        drafts = grown.propose(view, 4)

    assert list(drafts) == list(Ngram(options).propose(View(ids), 4))


def test_a_period_is_continued_for_as_long_as_is_wanted():
    assert propose([1, 2, 3] * 4, num_drafts=8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert propose([7] * 9, num_drafts=5) == [7] * 5


def test_the_latest_of_equally_long_matches_counts():
    assert propose([1, 2, 3, 8, 0, 1, 2, 3, 9, 5, 1, 2, 3]) == [9, 5, 1]


def test_the_longest_match_counts_however_old():
    ids = [5, 1, 2, 3, 8, 6, 1, 2, 3, 9, 5, 1, 2, 3]

    assert propose(ids, min_ngram=2) == [8, 6, 1, 2]


def test_a_match_of_n_tokens_is_worth_n_drafts():
    before = [1, 2, 3, 4, 5, 6, 7, 8, 9]

    assert propose([*before, 9], min_ngram=1, num_drafts=5) == [9]
    assert propose([*before, 2, 3], min_ngram=2, num_drafts=5) == [4, 5]
    assert propose([*before, 2, 3, 4, 5, 6], min_ngram=2, num_drafts=5) == [7, 8, 9, 2, 3]


def test_D2_no_more_than_is_asked_for():
    ids = [1, 2, 3] * 4

    assert Ngram().max_drafts == 5
    assert [len(propose(ids, n)) for n in (0, 1, 4, 5, 6)] == [0, 1, 4, 5, 5]


@pytest.mark.parametrize("ids", [[1], [1, 2], [1, 2, 3], [1, 1, 1], list(range(50))])
def test_without_a_match_nothing_is_proposed(ids):
    assert propose(ids) == []


def test_D3_an_ended_request_leaves_nothing_behind():
    proposer = Ngram()
    first = proposer.propose(View([1, 2, 3] * 4), 5)
    proposer.forget("r")
    proposer.forget("nobody")

    assert list(first) == [1, 2, 3, 1, 2]
    assert list(proposer.propose(View([4, 5, 6, 1, 2, 3]), 5)) == []


def test_requests_do_not_see_each_other():
    proposer = Ngram()
    proposer.propose(View([1, 2, 3, 4, 5], "a"), 5)

    assert list(proposer.propose(View([9, 1, 2, 3], "b"), 5)) == []


def test_a_token_costs_the_same_however_long_the_text_is():
    """Not a clock test: the index is as large as the tokens entered, and enters each once."""
    index, ids = NgramIndex(range(3, 6)), [i * i % 9973 for i in range(20000)]
    index.extend(ids)
    start = time.process_time()
    for _ in range(200):
        ids.append(len(ids) % 17)
        index.extend(ids)
        index.find(ids)

    assert time.process_time() - start < 0.1


def test_wrong_ranges_are_refused():
    with pytest.raises(ConfigError) as caught:
        resolve(overrides={"proposer": {"use": "ngram", "min-ngram": 6}})

    assert "min-ngram 6 is more than max-ngram 5" in str(caught.value)
