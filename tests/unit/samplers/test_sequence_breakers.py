"""DRY's breakers: from texts to the tokens that contain them, or begin them."""

from __future__ import annotations

import pytest

from octavo_plugins.samplers.breakers import breaker_ids
from octavo_plugins.samplers.dry import Breakers, first_state
from scripted import END_OF_TURN, END_THINK, FIRST_WORD, THINK, WORDS, BytesTokenizer

TOKENIZER = BytesTokenizer()
ID_OF = {word: FIRST_WORD + i for i, word in enumerate(WORDS)}


def pairs(*breakers):
    return {tuple(tail): set(heads) for heads, tail in breaker_ids(TOKENIZER, breakers)}


def test_every_token_that_contains_a_breaker_is_one():
    words = {ID_OF[" two"], ID_OF[" three"], ID_OF["stop"]}
    assert pairs("t") == {(): {ord("t"), END_OF_TURN, THINK, END_THINK} | words}


def test_a_token_that_ends_with_the_beginning_needs_the_rest_behind_it():
    # "hello" and "two" end with "o", "stop" does not
    ends = {ord("o"), ID_OF[" two"], ID_OF["hello"], ID_OF[" hello"]}
    assert pairs("oh") == {(ord("h"),): ends}


def test_the_rest_is_what_the_tokenizer_makes_of_it():
    assert pairs("y stop")[(ord(" "), ID_OF["stop"])] == {ord("y")}
    assert pairs("day stop")[(ID_OF["stop"],)] == {ID_OF["Good day "]}


def test_several_breakers_share_their_tails():
    assert pairs("\n", ":") == {(): {10, 58}}


def test_a_breaker_within_a_character_is_left_out():
    # \u6f22 is three bytes: its first alone is no text that could be followed
    found = pairs("\u6f22")
    assert found == {(): {ID_OF["\u6f22\u5b57"]}}


def test_no_breakers_are_none():
    assert breaker_ids(TOKENIZER, ()) == []


@pytest.mark.parametrize(
    ("text", "is_end"),
    [("a stop", True), ("sto", False), ("hello oh", True), ("hello o", False), ("h", False)],
)
def test_breakers_are_found_at_the_end_of_a_history(text, is_end):
    breakers = Breakers(breaker_ids(TOKENIZER, ("p", "oh")))
    ids = TOKENIZER.encode(text)
    state = first_state(breakers, ids[:-1], 10)
    assert breakers.is_end(state.after(ids[-1]).ids) == is_end
