"""DRY: penalties beside a plain implementation, and a state that grows token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stage_references as expected
from octavo.interfaces.sampler import SamplingRow
from octavo.sampling_params import SamplingParams
from octavo_plugins.samplers.dry import Dry

WIDTH = 8


def args_of(multiplier=0.8, base=1.75, allowed=2, last_n=-1, breakers=()):
    """Return `extra_args` as the front end writes them; breakers are sequences of ids."""
    pairs = [[[head], list(tail)] for head, *tail in breakers]
    return {
        "dry_multiplier": multiplier, "dry_base": base, "dry_allowed_length": allowed,
        "dry_penalty_last_n": last_n, "dry_breakers": pairs,
    }  # fmt: skip


def row_of(history, args, num_prompt=None):
    params = SamplingParams(extra_args=args)
    split = len(history) if num_prompt is None else num_prompt
    row = SamplingRow(params, history[:split], history[split:])
    row.state = Dry().new_state(row)
    return row


def penalties(history, **settings):
    x = torch.zeros(WIDTH)
    Dry().apply(x, row_of(list(history), args_of(**settings)))
    return {i: -value for i, value in enumerate(x.tolist()) if value}


@pytest.mark.parametrize(
    ("history", "settings", "probs"),
    [
        ((0, 1), (1.0, 1.1, 2, 4), [0.25] * 4),
        ((0, 1, 2, 0, 1), (1.0, 1.1, 2, 5), [0.296923, 0.296923, 0.109232, 0.296923]),
        ((0, 1, 3, 4, 0, 1), (1.0, 1.1, 2, 6, ((3,),)), [0.2] * 5),
        ((0, 1, 2, 0, 1), (2.0, 1.1, 2, 5), [0.241818, 0.241818, 0.032727, 0.241818, 0.241818]),
        ((0, 1, 2, 3, 4, 0, 1), (1.0, 1.1, 4, 7), [0.2] * 5),
    ],
)
def test_dry_on_the_rows_of_llama_cpp(history, settings, probs):
    x = torch.zeros(len(probs))
    Dry().apply(x, row_of(list(history), args_of(*settings)))
    assert torch.softmax(x, 0).tolist() == pytest.approx(probs, abs=1e-5)


def test_the_longest_repetition_counts_for_each_token():
    # 7 follows 3 alone, and "3 7 1 2 3"; 5 follows "1 2 3"
    history = [1, 2, 3, 5, 3, 7, 1, 2, 3, 7, 1, 2, 3]
    got = penalties(history, multiplier=1.0, base=2.0, allowed=1)
    assert got == {5: 2.0**2, 7: 2.0**4}


def test_breakers_end_repetitions_and_are_not_penalised():
    history = [1, 2, 3, 4, 1, 2, 3]
    assert penalties(history, multiplier=1.0, base=2.0, allowed=1) == {4: 4.0}
    assert penalties(history, multiplier=1.0, base=2.0, allowed=1, breakers=((2,),)) == {4: 1.0}
    assert penalties(history, multiplier=1.0, base=2.0, allowed=1, breakers=((2, 3),)) == {}
    assert penalties(history, multiplier=1.0, base=2.0, allowed=1, breakers=((4,),)) == {}


def test_a_penalty_stays_finite():
    (value,) = penalties([1] * 400, base=4.0).values()
    assert 1e37 < value < 3.4e38


histories = st.lists(st.integers(0, 3), max_size=40)
breakers = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=2)


@settings(max_examples=300, deadline=None)
@given(
    history=histories, allowed=st.integers(0, 4), last_n=st.integers(-1, 30), breakers=breakers,
    base=st.sampled_from([1.0, 1.0001, 1.3, 1.75]),
)  # fmt: skip
@example(history=[0, 0, 0, 0], allowed=0, last_n=-1, breakers=[], base=1.0)
@example(history=[2, 0, 1, 2, 0, 1, 2], allowed=2, last_n=5, breakers=[], base=1.75)
def test_dry_gives_the_logits_of_the_plain_way(history, allowed, last_n, breakers, base):
    # a breaker that begins before the window is none in llama.cpp, and is one here
    breakers = breakers if last_n < 0 else [one for one in breakers if len(one) == 1]
    args = args_of(0.5, base, allowed, last_n, breakers)
    x = torch.arange(WIDTH, dtype=torch.float32)
    Dry().apply(x, row_of(history, args))
    if last_n == 0:
        assert x.tolist() == list(range(WIDTH))
        return
    settings_ = (0.5, base, allowed, last_n)
    tuples = [tuple(one) for one in breakers]
    want = expected.dry(np.arange(WIDTH), history, settings_, tuples)
    assert x.tolist() == pytest.approx(want.tolist(), abs=1e-4)


@settings(max_examples=200, deadline=None)
@given(history=histories, num_prompt=st.integers(0, 40), breakers=breakers)
def test_a_state_that_grew_is_the_state_of_the_whole(history, num_prompt, breakers):
    args = args_of(breakers=breakers)
    row = row_of(history[:num_prompt], args)
    states = [row.state]
    for token_id in history[num_prompt:]:
        row.state = Dry().advance(row, torch.zeros(WIDTH), token_id)
        states.append(row.state)
    whole = row_of(history, args).state
    assert states[-1].ids.tolist() == whole.ids.tolist()
    assert states[-1].repeats.tolist() == whole.repeats.tolist()
    # and the states on the way are what they were: a draft may be taken back
    for number, state in enumerate(states):
        length = min(num_prompt, len(history)) + number
        fresh = row_of(history[:length], args).state
        assert state.ids.tolist() == fresh.ids.tolist()
        assert state.repeats.tolist() == fresh.repeats.tolist()


def test_prompt_and_output_are_one_history():
    history = [1, 2, 3, 4, 1, 2, 3]
    rows = [row_of(history, args_of(), num_prompt) for num_prompt in range(len(history) + 1)]
    found = set()
    for row in rows:
        x = torch.zeros(WIDTH)
        Dry().apply(x, row)
        found.add(tuple(x.tolist()))
    assert len(found) == 1


def test_a_request_without_dry_has_no_state():
    assert row_of([1, 2], {}).state is None
    assert row_of([1, 2], args_of(multiplier=0.0)).state is None
    assert row_of([1, 2], args_of(last_n=0)).state is None
