"""Marks of reasoning: when a form is armed, and what a budget forces, by every token of a text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammars import allowed, byte_backend, row_spec
from octavo.execution.grammars import GrammarStore
from octavo.execution.reasoning import Marks, Phase, ReasoningRow
from octavo.execution.resources import Resources
from octavo.interfaces.grammar import GrammarSpec, ReasoningSpec
from scripted import END_THINK, EOS, THINK, VOCAB_SIZE

FORM = GrammarSpec("regex", "ab{2}c?")
STOP = ord("s")
#: what is drawn where any token may come
PALETTE = [*b"abcxs", THINK, END_THINK, EOS]
LONG_END = (ord("a"), ord("a"), ord("b"))


@pytest.fixture(scope="module")
def resources():
    resources = Resources(GrammarStore(byte_backend, VOCAB_SIZE))
    yield resources
    resources.close()


def row_of(resources, reasoning, output=(), grammar=FORM, **params):
    spec = row_spec(grammar, (EOS,), **params)
    spec.reasoning = reasoning
    return resources.start(0, spec, list(output))


def tokens(mask):
    return None if mask is None else np.flatnonzero(allowed(mask)).tolist()


def following(row):
    return tokens((row.masks(()) or [None])[0])


def test_inside_of_the_reasoning_anything_but_an_end_may_come(resources):
    row = row_of(resources, ReasoningSpec((END_THINK,), is_open=True))
    inside = following(row)

    assert inside == [i for i in range(VOCAB_SIZE) if i != EOS]
    row.commit([*b"zz", END_THINK])
    assert following(row) == [ord("a")]
    row.commit(b"abb")
    assert following(row) == sorted([ord("c"), EOS])


def test_a_reasoning_that_is_not_open_begins_the_output_or_never(resources):
    spec = ReasoningSpec((END_THINK,), is_open=False, start_ids=(THINK,))
    thinking, answering = row_of(resources, spec), row_of(resources, spec)

    assert following(thinking) == sorted([ord("a"), THINK])
    thinking.commit([THINK])
    assert EOS not in following(thinking)
    thinking.commit([ord("q"), END_THINK])
    assert following(thinking) == [ord("a")]
    answering.commit(b"a")
    assert following(answering) == [ord("b")]


def test_a_start_mark_of_several_tokens_may_turn_out_to_be_the_form(resources):
    # the mark is `abx`, whose beginning is one of the form as well
    spec = ReasoningSpec((END_THINK,), is_open=False, start_ids=tuple(b"abx"))
    row = row_of(resources, spec)

    assert [tokens(mask) for mask in row.masks(b"abx")[:3]] == [
        [ord("a")], [ord("b")], sorted(b"bx"),
    ]  # fmt: skip
    assert EOS not in tokens(row.masks(b"abx")[3])
    assert [tokens(mask) for mask in row.masks(b"abb")[3:]] == [sorted([ord("c"), EOS])]
    row.commit(b"ab")
    other = row_of(resources, spec, b"ab")
    row.commit(b"b")
    other.commit(b"x")
    assert following(row) == sorted([ord("c"), EOS])
    assert len(following(other)) == VOCAB_SIZE - 1


def test_a_form_without_marks_of_a_start_is_armed_at_once(resources):
    row = row_of(resources, ReasoningSpec((END_THINK,), is_open=False))

    assert following(row) == [ord("a")]


@pytest.mark.parametrize("grammar", [FORM, None])
def test_a_spent_budget_forces_the_end_mark_from_where_it_is(resources, grammar):
    spec = ReasoningSpec(LONG_END, is_open=True, budget=4)
    row = row_of(resources, spec, grammar=grammar)

    row.commit(b"xxx")
    assert row.forced(8) == []
    row.commit(b"a")
    assert row.forced(8) == list(b"ab"), "one token of the mark is there"
    assert row.forced(1) == list(b"a")
    assert [tokens(mask) for mask in row.masks(b"ab")[:2]] == [[ord("a")], [ord("b")]]
    behind = row.masks(b"ab")[2]
    assert tokens(behind) == (None if grammar is None else [ord("a")])


def test_a_budget_of_nothing_forces_the_end_at_once(resources):
    row = row_of(resources, ReasoningSpec((END_THINK,), is_open=True, budget=0), grammar=None)

    assert following(row) == [END_THINK]
    row.commit([END_THINK])
    assert following(row) is None


def test_without_a_form_the_start_may_come_anywhere_and_counts_from_there(resources):
    spec = ReasoningSpec((END_THINK,), is_open=False, budget=2, start_ids=(THINK,))
    row = row_of(resources, spec, grammar=None)

    row.commit([*b"well", THINK, ord("a")])
    assert following(row) is None
    row.commit(b"b")
    assert following(row) == [END_THINK]
    row.commit([END_THINK, THINK, *b"abcdef"])
    assert following(row) is None, "a second reasoning is text"


def test_an_end_mark_that_overlaps_itself_is_found():
    marks = Marks(ReasoningSpec(LONG_END, is_open=True), is_first=True)
    for text in (b"aab", b"aaab", b"aaaab", b"abaab", b"aaxaab"):
        place = marks.start()
        for token_id in text[:-1]:
            place = marks.follow(place, token_id)
            assert place.phase is Phase.INSIDE
        assert marks.follow(place, text[-1]).phase is Phase.AFTER


@settings(max_examples=200, deadline=None)
@given(
    mark=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=6),
    text=st.lists(st.sampled_from([1, 2]), max_size=24),
)
def test_a_mark_is_found_where_it_first_ends(mark, text):
    marks = Marks(ReasoningSpec(tuple(mark), is_open=True), is_first=True)
    place, found = marks.start(), None
    for index, token_id in enumerate(text, 1):
        place = marks.follow(place, token_id)
        if place.phase is Phase.AFTER:
            found = index
            break
    ends = (i for i in range(len(mark), len(text) + 1) if text[i - len(mark) : i] == mark)

    assert found == next(ends, None)


@pytest.mark.parametrize("vocab_size", [258, 287, 288, 289, 320])
def test_inside_all_tokens_of_the_vocabulary_may_come(vocab_size):
    spec = row_spec(FORM, (EOS,))
    spec.reasoning = ReasoningSpec((257,), is_open=True)
    (mask,) = ReasoningRow(spec, Untouched(), vocab_size).masks(())

    assert np.flatnonzero(allowed(mask, vocab_size)).tolist() == [
        token_id for token_id in range(vocab_size) if token_id != EOS
    ]


class Untouched:
    """A grammar that is not asked while it is not armed."""


def test_min_tokens_bar_stop_tokens_in_the_reasoning_and_count_it_in_the_form(resources):
    spec = ReasoningSpec((END_THINK,), is_open=True)
    row = row_of(
        resources, spec, grammar=GrammarSpec("regex", "a*"), min_tokens=5, stop_token_ids=[STOP]
    )

    assert STOP not in following(row)
    masks = row.masks([ord("x"), END_THINK, *b"aaaa"])
    ends = [EOS in tokens(mask) for mask in masks]
    assert ends == [False, False, False, False, False, True, True]
    row.commit([*b"xxxxx"])
    assert STOP in following(row)


def test_a_draft_that_may_not_come_has_no_masks_behind_it(resources):
    spec = ReasoningSpec((END_THINK,), is_open=True, budget=2)
    row = row_of(resources, spec)

    assert len(row.masks([EOS, ord("a")])) == 1
    assert len(row.masks([*b"xyz", END_THINK])) == 3
    assert len(row.masks([ord("x"), END_THINK, ord("q"), ord("a")])) == 3


def random_specs():
    marks = st.sampled_from([(END_THINK,), LONG_END, tuple(b"xa")])
    starts = st.sampled_from([(), (THINK,), tuple(b"ab"), (THINK, ord("x"))])
    budgets = st.sampled_from([None, 0, 1, 3, 6])
    return st.builds(ReasoningSpec, marks, st.booleans(), budgets, starts)


@settings(max_examples=120, deadline=None)
@given(
    spec=random_specs(),
    grammar=st.sampled_from([FORM, None, GrammarSpec("regex", "(ab|x)*")]),
    min_tokens=st.sampled_from([0, 4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_drafts_rollback_and_resumption_give_the_masks_of_one_token_after_another(
    resources, spec, grammar, min_tokens, seed
):
    rng = np.random.default_rng(seed)
    params = {"min_tokens": min_tokens, "stop_token_ids": [STOP]}
    row, output, steps = row_of(resources, spec, grammar=grammar, **params), [], []
    for _ in range(16):
        steps.append(following(row))
        choices = PALETTE if steps[-1] is None else [t for t in PALETTE if t in steps[-1]]
        token_id = int(rng.choice(choices or steps[-1]))
        output.append(token_id)
        if token_id in {EOS, STOP}:
            break
        row.commit([token_id])
    for start in range(len(output)):
        resumed = row_of(resources, spec, output[:start], grammar=grammar, **params)
        wrong = [*output[start : start + 2], THINK, *b"ab"]
        resumed.masks(wrong)  # drafts that may be taken back
        found = [tokens(mask) for mask in resumed.masks(output[start:])]
        wanted = steps[start:]
        assert found[: len(wanted)] == wanted[: len(found)]
        assert all(mask is None for mask in wanted[len(found) :])
    assert_reasoned(spec, output, has_form=grammar is not None)


def assert_reasoned(spec, output, *, has_form):
    """The budget is kept, and no end of the text stands inside of a reasoning with a form."""
    begins = 0 if spec.is_open else None
    if begins is None and spec.start_ids:
        places = [0] if has_form else range(len(output))
        length = len(spec.start_ids)
        begins = next(
            (i + length for i in places if tuple(output[i : i + length]) == spec.start_ids), None
        )
    if begins is None:
        return
    inside, length = output[begins:], len(spec.end_ids)
    end = next(
        (i for i in range(len(inside)) if tuple(inside[i : i + length]) == spec.end_ids), None
    )
    if spec.budget is not None:
        assert (len(inside) if end is None else end) <= spec.budget + (length if end is None else 0)
    if has_form:
        assert EOS not in inside[:end]
