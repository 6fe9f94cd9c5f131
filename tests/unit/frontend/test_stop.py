from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.stop import StopChecker


def _run(stops, pieces, **options):
    checker = StopChecker(stops, **options)
    deltas = []
    for position, piece in enumerate(pieces):
        shown, stop = checker.push(piece, position + 1)
        deltas.append(shown)
        if stop is not None:
            return deltas, stop
    deltas.append(checker.finish())
    return deltas, None


def test_match_over_several_pieces_is_cut_and_never_shown():
    assert _run(["STOP"], ["ab", "cS", "TO", "Px", "y"]) == (["ab", "c", "", ""], "STOP")


def test_stop_string_is_kept_when_asked_for_but_nothing_after_it():
    deltas, stop = _run(["STOP"], ["abS", "TOPxyz"], include_in_output=True)
    assert ("".join(deltas), stop) == ("abSTOP", "STOP")


def test_B30_text_is_held_only_while_its_tail_begins_a_stop_string():
    deltas, _ = _run(["\x01\x02\x03\x04\x05\x06\x07\x08"], ["The", " answer", " is", " 4"])
    assert deltas == ["The", " answer", " is", " 4", ""]
    assert _run(["wor"], ["hello w", "a"])[0] == ["hello ", "wa", ""]


def test_held_text_is_released_at_the_end():
    assert _run(["world"], ["hello wor"]) == (["hello ", "wor"], None)


def test_overlapping_beginnings_fall_back_to_the_longest_that_still_fits():
    assert _run(["aab"], ["aa", "aa", "b", "c"]) == (["", "aa", ""], "aab")


def test_first_stop_to_end_counts_and_of_two_that_end_together_the_longer():
    assert _run(["abc", "b"], ["xabc"]) == (["xa"], "b")
    assert _run(["b", "ab"], ["xab"]) == (["x"], "ab")


def test_stop_inside_another_that_fails_is_found():
    assert _run(["abcd", "bc"], ["a", "b", "c"]) == (["", "", "a"], "bc")


def test_B33_match_that_ends_before_min_tokens_is_text():
    deltas, stop = _run(["ab"], ["ab", "ab", "xab", "z"], min_tokens=3)
    assert ("".join(deltas), stop) == ("ababx", "ab")


def test_B33_match_that_begins_before_min_tokens_and_ends_there_counts():
    deltas, stop = _run(["abc"], ["a", "b", "c"], min_tokens=3)
    assert ("".join(deltas), stop) == ("", "abc")
    deltas, stop = _run(["abc"], ["a", "b", "c"], min_tokens=4)
    assert ("".join(deltas), stop) == ("abc", None)


def test_ignored_match_is_not_held_but_its_tail_may_be():
    deltas, stop = _run(["aa"], ["a", "a", "a"], min_tokens=3)
    assert (deltas, stop) == (["", "a", ""], "aa")


_STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4)


@given(stops=_STOPS, pieces=st.lists(st.text("ab", max_size=3), max_size=12))
def test_result_is_that_of_a_naive_search_and_split_invariant(stops, pieces):
    text = "".join(pieces)
    ends = [end for end in range(1, len(text) + 1) if text[:end].endswith(tuple(stops))]
    if ends:
        found = max((s for s in stops if text[: ends[0]].endswith(s)), key=len)
        expected = text[: ends[0] - len(found)], found
    else:
        expected = text, None
    for split in (pieces, list(text), [text]):
        deltas, stop = _run(stops, split)
        assert ("".join(deltas), stop) == expected


@given(stops=_STOPS, pieces=st.lists(st.text("ab", max_size=3), max_size=12))
def test_exactly_the_longest_tail_that_begins_a_stop_string_is_held(stops, pieces):
    checker = StopChecker(stops)
    shown = ""
    for position in range(len(pieces)):
        delta, stop = checker.push(pieces[position], position + 1)
        shown += delta
        if stop is not None:
            return
        text = "".join(pieces[: position + 1])
        beginnings = {s[:i] for s in stops for i in range(1, len(s))}
        held = max((len(b) for b in beginnings if text.endswith(b)), default=0)
        assert shown == text[: len(text) - held]


def test_choices_of_one_call_share_their_automaton():
    first, second = StopChecker(["ab", "b"]), StopChecker(["ab", "b"])
    assert first._automaton is second._automaton
    assert first.push("a", 1) == ("", None)
    assert second.push("xb", 1) == ("x", "b")
    assert first.push("b", 2) == ("", "ab")


def test_long_repetitive_stop_strings_cost_no_more_a_character():
    checker = StopChecker(["a" * 2000 + "b"] * 64)
    start = time.perf_counter()
    for position in range(20_000):
        checker.push("a", position + 1)
    assert time.perf_counter() - start < 2  # naive search: 64 x 2,000 comparisons a character
