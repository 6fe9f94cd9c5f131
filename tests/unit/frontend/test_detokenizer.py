from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.detokenizer import detokenizer_of
from scripted import BOS, END_THINK, EOS, THINK, BytesTokenizer, WordsTokenizer

TEXT = "Zdravím ďábla 😀👨‍👩‍👧 漢字 ✓"


def _deltas(tokenizer, ids, *, prompt=(), sizes=None, skip=True):
    detokenizer = detokenizer_of(tokenizer, list(prompt), skip_special_tokens=skip)
    sizes = iter(sizes or [1] * len(ids))
    deltas, start = [], 0
    for size in sizes:
        deltas.append(detokenizer.push(ids[start : start + size]))
        start += size
    deltas.append(detokenizer.push(ids[start:]))
    deltas.append(detokenizer.finish())
    return deltas


def test_B20_characters_of_many_bytes_come_whole():
    tokenizer = BytesTokenizer()
    deltas = _deltas(tokenizer, list(TEXT.encode()))  # one token per byte
    assert "".join(deltas) == TEXT
    assert not any("\ufffd" in delta for delta in deltas)
    assert all(delta.encode() for delta in deltas if delta)  # no lone surrogates


@given(data=st.binary(max_size=24), cuts=st.lists(st.integers(0, 4), max_size=24))
def test_deltas_joined_are_the_whole_decode_for_every_split_of_any_bytes(data, cuts):
    tokenizer = BytesTokenizer()
    assert "".join(_deltas(tokenizer, list(data), sizes=cuts)) == data.decode("utf-8", "replace")


@given(ids=st.lists(st.integers(0, 272), max_size=30), strips=st.booleans(), skip=st.booleans())
def test_deltas_joined_are_the_tokenizers_decode(ids, strips, skip):
    tokenizer = BytesTokenizer(strips_leading_space=strips)
    assert "".join(_deltas(tokenizer, ids, skip=skip)) == tokenizer.decode(ids, skip)


def test_incomplete_character_at_the_end_is_one_replacement_and_only_then():
    detokenizer = detokenizer_of(BytesTokenizer(), [])
    assert detokenizer.push([0xE6, 0xBC]) == ""
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_B18_output_completes_the_character_that_the_prompt_left_incomplete():
    tokenizer = BytesTokenizer()
    prompt = [*tokenizer.encode("Good day "), 0xE6, 0xBC]
    assert "".join(_deltas(tokenizer, [0xA2, ord("x")], prompt=prompt)) == "漢x"


def test_B18_prompt_text_never_appears_when_the_character_stays_incomplete():
    tokenizer = BytesTokenizer()
    prompt = [*tokenizer.encode("Good day "), 0xE6, 0xBC]
    assert "".join(_deltas(tokenizer, [ord("x"), ord("y")], prompt=prompt)) == "\ufffdxy"
    assert "".join(_deltas(tokenizer, [EOS], prompt=prompt)) == ""  # the prompt's own bytes


@pytest.mark.parametrize("skip", [True, False])
def test_B24_no_spaces_around_added_tokens(skip):
    tokenizer = BytesTokenizer()
    ids = [THINK, *b"hm", END_THINK, ord("7")]
    assert "".join(_deltas(tokenizer, ids, skip=skip)) == "<think>hm</think>7"


def test_special_tokens_are_skipped_or_spelled_out():
    tokenizer = BytesTokenizer()
    assert "".join(_deltas(tokenizer, [ord("a"), EOS, ord("b")])) == "ab"
    assert "".join(_deltas(tokenizer, [ord("a"), EOS, ord("b")], skip=False)) == "a<|end|>b"


def test_leading_space_goes_only_where_a_text_begins():
    tokenizer = BytesTokenizer(strips_leading_space=True)
    ids = tokenizer.encode(" one two")
    assert "".join(_deltas(tokenizer, ids)) == "one two"
    assert "".join(_deltas(tokenizer, ids, prompt=[BOS])) == "one two"  # nothing visible before
    assert "".join(_deltas(tokenizer, ids, prompt=[BOS, ord("a")])) == " one two"


def test_decoders_that_look_at_neighbours_are_followed_by_a_window():
    tokenizer = WordsTokenizer()
    draw = random.Random(0)  # noqa: S311 - test data
    for _ in range(50):
        ids = [draw.randrange(6) for _ in range(40)]
        assert "".join(_deltas(tokenizer, ids)) == tokenizer.decode(ids)
    continued = "".join(_deltas(tokenizer, [1, 2], prompt=[0]))
    assert continued == "ing good"  # "play" + "ing good"


def test_cost_of_a_token_does_not_grow_with_the_text():
    detokenizer = detokenizer_of(BytesTokenizer(), [])
    ids = list(TEXT.encode()) * 500  # 25,000 tokens
    start = time.perf_counter()
    for token_id in ids:
        detokenizer.push([token_id])
    # 10 us a token are promised; ten times that, so that a busy machine does not fail this test,
    # while a decoder that reads everything again would need a hundred times more
    assert (time.perf_counter() - start) / len(ids) < 100e-6


@pytest.mark.parametrize(
    ("tokenizer", "begun", "ends"),
    [
        (BytesTokenizer(), [0xF0, 0x9F], ([0x98, 0x80], [0x98, 0x81])),
        (WordsTokenizer(), [0, 3], ([1, 2], [4, 5])),
    ],
)
def test_forks_go_on_by_themselves(tokenizer, begun, ends):
    first = detokenizer_of(tokenizer, [])
    text = first.push(begun)
    both = first, first.fork()
    texts = [[text], [text]]
    for i in range(2):  # in turn
        for fork, shown, ids in zip(both, texts, ends, strict=True):
            shown.append(fork.push(ids[i : i + 1]))
    for fork, shown, ids in zip(both, texts, ends, strict=True):
        assert "".join([*shown, fork.finish()]) == tokenizer.decode([*begun, *ids])
