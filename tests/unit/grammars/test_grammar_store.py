"""The store compiles beside the steps; a row follows its grammar and says what may end it."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from grammars import allowed, byte_backend, row_spec
from octavo.errors import GrammarError, ModelLoadError
from octavo.execution.grammars import GrammarStore, digest_of
from octavo.interfaces.grammar import GrammarSpec
from octavo_plugins.grammars.options import LLGuidanceOptions
from scripted import EOS, VOCAB_SIZE

LETTERS = GrammarSpec("regex", "a{2}b?")
STOP = ord("s")


@pytest.fixture(scope="module")
def store():
    store = GrammarStore(byte_backend, VOCAB_SIZE)
    yield store
    store.close()


def tokens(mask):
    return np.flatnonzero(allowed(mask)).tolist()


def row_of(store, grammar=LETTERS, output=(), **params):
    row = store.start(row_spec(grammar, (EOS,), **params))
    row.commit(output)
    return row


# ------------------------------------------------------------------ the store


def test_a_grammar_is_compiled_once_and_named_by_its_content(store):
    first, second = store.prepare(LETTERS), store.prepare(LETTERS)

    assert first.result(10) == second.result(10) == digest_of(LETTERS)
    assert store.prepare(LETTERS).done()
    assert digest_of(LETTERS) != digest_of(GrammarSpec("choice", LETTERS.text))
    assert digest_of(LETTERS) != digest_of(GrammarSpec("regex", LETTERS.text, ""))


def test_a_grammar_that_does_not_compile_is_its_requests_error(store):
    bad = GrammarSpec("json_schema", '{"type": "notatype"}')

    for _ in range(2):
        with pytest.raises(GrammarError, match="Invalid type: notatype") as caught:
            store.prepare(bad).result(10)
        assert caught.value.param == "structured_outputs"
    assert store.prepare(LETTERS).result(10)


def test_a_back_end_that_cannot_be_built_is_asked_again():
    attempts = []

    def build():
        attempts.append(threading.current_thread().name)
        if len(attempts) == 1:
            raise ModelLoadError("the tokenizer is gone", "look for it")
        return byte_backend()

    store = GrammarStore(build, VOCAB_SIZE)
    assert attempts == [], "nothing is read before it is needed"
    with pytest.raises(GrammarError, match=r"(?s)cannot be given a form.*the tokenizer is gone"):
        store.prepare(LETTERS).result(10)
    assert store.prepare(LETTERS).result(10)
    assert all(name.startswith("octavo-grammar") for name in attempts)
    store.close()


def test_the_store_is_bounded_and_a_grammar_that_had_to_go_still_serves():
    store = GrammarStore(byte_backend, VOCAB_SIZE, max_compiled=2)
    specs = [GrammarSpec("regex", letter) for letter in "abcd"]
    for spec in specs:
        store.prepare(spec).result(10)

    assert len(store._compiled) == 2
    assert tokens(row_of(store, specs[0]).masks(())[0]) == [ord("a")]
    assert len(store._compiled) == 2
    store.close()


def test_closing_twice_is_fine_and_ends_what_is_being_compiled():
    options = LLGuidanceOptions(max_compile_s=60)
    store = GrammarStore(lambda: byte_backend(options=options), VOCAB_SIZE)
    store.prepare(LETTERS).result(10)
    endless = store.prepare(GrammarSpec("json_schema", '{"multipleOf": 99999989}'))
    store.close()
    store.close()

    assert endless.done()


# ------------------------------------------------------------------ a row


def test_masks_for_the_next_token_and_behind_each_draft(store):
    row = row_of(store)
    masks = row.masks(b"aab")

    assert [tokens(mask) for mask in masks] == [
        [ord("a")],
        [ord("a")],
        sorted([ord("b"), EOS]),
        [EOS],
    ]
    assert [tokens(mask) for mask in row.masks(())] == [[ord("a")]], "and nothing has moved"


def test_masks_end_at_the_first_draft_that_may_not_come(store):
    row = row_of(store)

    assert len(row.masks([ord("a"), ord("x"), ord("a")])) == 2
    assert len(row.masks([EOS, ord("a")])) == 1
    assert len(row.masks([ord("a"), -5, 10**6])) == 2
    row.commit(b"aa")
    assert len(row.masks([EOS, ord("a")])) == 1, "nothing follows an end"


def test_commit_moves_and_the_end_is_the_end(store):
    row = row_of(store)
    row.commit(b"aa")

    assert tokens(row.masks(())[0]) == sorted([ord("b"), EOS])
    row.commit([EOS])
    row.commit(b"zzz")
    row.masks(())
    assert row.forced(8) == []


def test_after_preemption_the_output_is_followed_again(store):
    row = row_of(store, output=b"aab")

    assert tokens(row.masks(())[0]) == [EOS]


def test_an_output_outside_its_grammar_is_that_rows_error_and_never_ignored(store):
    row = row_of(store, output=b"ax")
    with pytest.raises(GrammarError, match="token 120 of the output"):
        row.masks(())
    other = row_of(store)
    other.commit(b"q")
    with pytest.raises(GrammarError):
        other.masks(b"a")
    assert other.forced(4) == []


def test_B71_the_end_of_the_grammar_wins_over_min_tokens(store):
    row = row_of(store, min_tokens=50)
    row.commit(b"aa")

    assert tokens(row.masks(())[0]) == [ord("b")], "the end is put off while there is more to say"
    assert tokens(row.masks(b"b")[1]) == [EOS], "and comes when there is not"


def test_min_tokens_count_the_drafts_before_a_mask(store):
    row = row_of(store, GrammarSpec("regex", "a*"), min_tokens=3)
    masks = row.masks(b"aaaa")

    assert [EOS in tokens(mask) for mask in masks] == [False, False, False, True, True]


def test_ignore_eos_ends_only_where_nothing_else_is_left(store):
    row = row_of(store, ignore_eos=True)
    masks = row.masks(b"aab")

    assert tokens(masks[2]) == [ord("b")]
    assert tokens(masks[3]) == [EOS]


def test_stop_tokens_end_a_complete_text(store):
    row = row_of(store, stop_token_ids=[STOP])
    masks = row.masks(b"aa")

    assert STOP not in tokens(masks[0]) + tokens(masks[1])
    assert tokens(masks[2]) == sorted([ord("b"), EOS, STOP])
    row.commit([*b"aa", STOP])
    assert row.forced(4) == []


def test_a_token_that_ends_texts_of_the_model_is_no_part_of_one(store):
    row = store.start(row_spec(GrammarSpec("regex", "[ab]{2}"), (EOS, ord("b"))))
    masks = row.masks(b"aa")

    assert [tokens(mask) for mask in masks[:2]] == [[ord("a")]] * 2
    assert tokens(masks[2]) == sorted([EOS, ord("b")])
    row.commit([*b"aa", ord("b")])
    assert row.forced(4) == []


def test_forced_tokens_are_offered_up_to_the_limit(store):
    row = row_of(store, GrammarSpec("regex", "xyzxyzxyz[0-9]"))
    assert row.forced(8) == [], "nothing is known of a row before its first masks"
    row.masks(())

    assert row.forced(3) == list(b"xyz")
    assert row.forced(0) == []
    row.commit(b"xyzxyzxyz")
    assert row.forced(8) == []


def test_a_grammar_that_texts_wore_out_is_made_anew():
    pattern = GrammarSpec("regex", "(a|b)*a(a|b){12}c|d{3}")
    backend = byte_backend(options=LLGuidanceOptions(max_states=60))
    compiled = []

    class Counting:
        def compile(self, spec):
            compiled.append(backend.compile(spec))
            return compiled[-1]

        def close(self):
            backend.close()

    store = GrammarStore(Counting, VOCAB_SIZE)
    other, row = row_of(store, pattern), row_of(store, pattern)
    other.masks(())
    other.commit(b"d")
    text = b"abbabaabbbabababbabaaabbba"
    for token_id in text:
        row.masks(())
        row.commit([token_id])

    assert len(compiled) > 1, "the grammar has not come to its limit"
    assert tokens(row.masks(())[0]) == sorted(b"ab" + b"c" * (text[-13:-12] == b"a"))
    assert tokens(other.masks(())[0]) == [ord("d")]
    other.commit(b"dd")
    assert tokens(other.masks(())[0]) == [EOS]
    store.close()


def test_a_dead_end_behind_a_draft_concerns_the_draft_alone():
    # no token begins with the byte that must follow: "a" can be said, its sequel cannot
    class NoX:
        def __init__(self, state):
            self._state = state

        def __getattr__(self, name):
            return getattr(self._state, name)

        def fill_mask(self, mask):
            self._state.fill_mask(mask)
            mask[ord("x") // 32] &= ~np.uint32(1 << ord("x") % 32)

    store = GrammarStore(byte_backend, VOCAB_SIZE)
    row = row_of(store, GrammarSpec("regex", "ax|bb"))
    row.masks(())
    row._state = NoX(row._state)

    assert [tokens(mask) for mask in row.masks(b"a")] == [sorted(b"ab"), []]
    assert [tokens(mask) for mask in row.masks(b"b")] == [sorted(b"ab"), [ord("b")]]
    store.close()


_WITHOUT_LIBRARY = """
import sys
sys.modules["llguidance"] = None
from concurrent.futures import Future
from pathlib import Path
from octavo.config.resolve import resolve
from octavo.errors import GrammarError
from octavo.execution import grammars
from octavo.interfaces.grammar import GrammarSpec

grammars.describe_model = grammars.load_tokenizer = lambda *_: None
config = resolve(overrides={"model": "m", "grammar.max-compile-s": 5})
store = grammars.GrammarStore.of(config, Path("m"), 10)
try:
    store.prepare(GrammarSpec("regex", "a")).result()
except GrammarError as error:
    print(error)
store.close()
"""


def test_without_the_library_forms_are_refused_and_nothing_else():
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_LIBRARY], capture_output=True, text=True, check=True
    )

    assert "this model's texts cannot be given a form" in done.stdout
    assert "pip install 'llguidance>=1.9'" in done.stdout
