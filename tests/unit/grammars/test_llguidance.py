"""The llguidance back end against what the interface promises, on a vocabulary of bytes."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammars import accepts, allowed, byte_backend, follow, mask_of, schema_spec
from octavo.errors import GrammarError
from octavo.interfaces.grammar import GrammarContext, GrammarSpec
from octavo_plugins.grammars.llguidance_grammar import LLGuidance
from octavo_plugins.grammars.options import LLGuidanceOptions
from scripted import BOS, END_OF_TURN, EOS, VOCAB_SIZE, BytesTokenizer, WordsTokenizer

ORDER = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "qty": {"type": "integer"}},
    "required": ["title", "qty"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def backend():
    backend = byte_backend()
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def tokenizer():
    return BytesTokenizer()


def regex(pattern):
    return GrammarSpec("regex", pattern)


def choice(*texts):
    return GrammarSpec("choice", json.dumps(texts))


# ------------------------------------------------------------------ G1: exactly the grammar

REGEXES = (
    r"[0-9]{4}", r"cat.*", r"(a|b)*abb", r"\d+(\.\d+)?", r"hello( one| two)+", r"^a|b$", r"",
    r"(?i)stop", r"[^a]+", r"é+|漢字", "a/b", r"a\\/b", r"(yes|no)\n", '"x"', r"a{2,3}b?",
)  # fmt: skip
TEXTS = (
    "1234", "123", "12345", "cat", "category one", "ca", "abb", "aabb", "ab", "3.14", "3.", "-3",
    "hello one two", "hello", "a", "b", "", "STOP", "stOp", "éé", "漢字", "漢", "a/b", "a\\/b",
    "yes\n", "no", '"x"', "aab", "aaaab",
)  # fmt: skip


@pytest.mark.parametrize("pattern", REGEXES)
def test_g1_a_regex_is_matched_as_a_whole(backend, pattern):
    compiled = backend.compile(regex(pattern))

    for text in TEXTS:
        is_match = re.fullmatch(pattern, text) is not None
        assert accepts(compiled, list(text.encode())) == is_match, text


def test_g1_however_a_text_is_cut_into_tokens(backend, tokenizer):
    compiled = backend.compile(regex("hello( one| two| three)* END"))
    text = "hello one three two END"

    for token_ids in (tokenizer.encode(text), list(text.encode())):
        assert accepts(compiled, token_ids)
    halves = [*tokenizer.encode("hello"), *b" one thr", *b"ee", *tokenizer.encode(" two END")]
    assert accepts(compiled, halves)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text(max_size=5), min_size=1, max_size=5),
    other=st.text(max_size=5),
)
def test_g1_a_choice_is_one_of_the_texts_and_nothing_else(backend, texts, other):
    compiled = backend.compile(choice(*texts))

    assert all(accepts(compiled, list(text.encode())) for text in texts)
    assert accepts(compiled, list(other.encode())) == (other in texts)


def test_g1_what_looks_like_a_pattern_in_a_choice_is_plain_text(backend):
    compiled = backend.compile(choice("A", "AB", "ABC", "a.b", "x|y", "(z)"))

    assert [accepts(compiled, list(text.encode())) for text in ("A", "AB", "ABC")] == [True] * 3
    assert not accepts(compiled, b"axb")
    state = follow(compiled, b"A")
    assert state is not None
    assert state.is_complete
    assert mask_of(state)[ord("B")], "the longer choices are still open"


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_g1_json_in_the_usual_layouts(backend, indent, is_ascii):
    compiled = backend.compile(schema_spec(ORDER))
    data = {"title": 'é 漢字 😀 "quoted" \\ \n', "qty": -12}
    text = json.dumps(data, indent=indent, ensure_ascii=is_ascii)

    assert accepts(compiled, list(text.encode()))


@pytest.mark.parametrize(
    "text",
    [
        '{"title": "x"}', '{"title": "x", "qty": 1.5}', '{"title": 1, "qty": 1}', "{}", "[]",
        '{"title": "x", "qty": 1, "more": 2}', '{"title": "x", "qty": 1',
        ' {"title":"x","qty":1}', '{"title": "x", "qty": 1} ', '{"title": "a\nb", "qty": 1}',
        '{"title": "\\ud83d", "qty": 1}',
    ],
)  # fmt: skip
def test_g1_other_json_is_not_accepted(backend, text):
    assert not accepts(backend.compile(schema_spec(ORDER)), list(text.encode()))


def test_any_object_and_nothing_but_an_object(backend):
    compiled = backend.compile(GrammarSpec("json_object"))

    assert accepts(compiled, b'{"a": [1, {"b": null}], "c": "d"}')
    assert not accepts(compiled, b"[1]")
    assert not accepts(compiled, b'"a"')


def test_lark(backend):
    compiled = backend.compile(
        GrammarSpec(
            "lark",
            'start: sum\nsum: NUMBER | sum ("+" | "-") NUMBER\nNUMBER: /[0-9]+/  // digits\n',
        )
    )

    assert accepts(compiled, b"12+3-4")
    assert not accepts(compiled, b"12+")
    assert not accepts(compiled, b"+1")


def test_json_inside_of_lark_is_that_of_all_other_forms(backend):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "null"}, "/x/": {"const": "%json {"}},
    }
    text = f'start: "%json {{" a "/" a\na: %json {json.dumps(schema)} // %json {{'
    compiled = backend.compile(GrammarSpec("lark", text))

    def is_accepted(one):
        return accepts(compiled, f"%json {{{one}/{{}}".encode())

    assert all(map(is_accepted, ("{}", '{"a": null}', '{\n  "a": null\n}', '{"b":1}')))
    assert not any(map(is_accepted, ("{  }", '{"a":1}', '{"\\u0061":1}', "{\n\n}")))
    for wrong in ("start: %json {", "start: %json 3", 'start: %json {"a" }'):
        with pytest.raises(GrammarError):
            backend.compile(GrammarSpec("lark", wrong))


# ------------------------------------------------------------------ ends and markers


def test_markers_and_ends_are_never_allowed(backend):
    for spec in (regex("(?s).*"), regex(r"(<\|end\|>)+"), GrammarSpec("lark", "start: /[^x]*/")):
        state = backend.compile(spec).start()
        mask = mask_of(state)
        assert not mask[[EOS, END_OF_TURN, BOS]].any()
        assert not any(map(state.advance, (EOS, BOS, -1, VOCAB_SIZE, 10**9)))
    state = backend.compile(regex(r"(<\|end\|>)+")).start()
    assert all(map(state.advance, b"<|end|>")), "their text may still be written out"


def test_logits_may_be_more_than_the_tokenizer_has():
    backend = byte_backend(vocab_size=VOCAB_SIZE + 70)
    state = backend.compile(regex("(?s).*")).start()
    mask = mask_of(state, VOCAB_SIZE + 70)

    assert mask[:256].any()
    assert not mask[VOCAB_SIZE:].any()
    backend.close()


def test_tokens_of_the_same_bytes_are_allowed_alike():
    class Doubled(BytesTokenizer):
        def token_bytes(self, token_id):
            return b"a" if token_id in {3, 200} else super().token_bytes(token_id)

    backend = LLGuidance(None, GrammarContext(Doubled(), VOCAB_SIZE))
    state = backend.compile(regex("a{2}")).start()

    assert np.flatnonzero(mask_of(state)).tolist() == [3, ord("a"), 200]
    assert state.advance(200)
    assert state.advance(3)
    assert state.is_complete
    backend.close()


def test_logits_may_be_fewer_than_the_tokenizer_has():
    backend = byte_backend(vocab_size=256)
    state = backend.compile(regex("hello one")).start()

    assert np.flatnonzero(mask_of(state, 256)).tolist() == [ord("h")]
    backend.close()


def test_a_tokenizer_that_is_not_exact_is_refused():
    with pytest.raises(GrammarError, match="byte by byte"):
        LLGuidance(None, GrammarContext(WordsTokenizer(), 6))


# ------------------------------------------------------------------ G2: refused, never ignored


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (schema_spec({"type": "notatype"}), "Invalid type: notatype"),
        (schema_spec({"$ref": "#/nope"}), "'/nope' does not exist"),
        (schema_spec({"$ref": "https://example.com/schema"}), "example.com"),
        (schema_spec({"not": {"type": "string"}}), 'Unimplemented keys: ["not"]'),
        (schema_spec({"type": "string", "format": "no-such"}), "Unknown format: no-such"),
        (schema_spec({"$ref": "#"}), "no text has this form"),
        (schema_spec({"type": "object", "x-guidance": {"lenient": True}}), "x-guidance"),
        (schema_spec([1]), "must be an object"),
        (schema_spec("text"), "must be an object"),
        (GrammarSpec("json_schema", "{"), "not valid JSON"),
        (regex(r"(a+)+$(?=b)"), "look-around"),
        (regex(r"(a)\1"), "backreferences"),
        (regex("["), "unclosed character class"),
        (regex("\\"), "lone backslash"),
        (regex("a[^\\s\\S]"), "no text has this form"),
        (choice(), "at least one"),
        (GrammarSpec("choice", "[1]"), "must be a text"),
        (GrammarSpec("choice", "a"), "not valid JSON"),
        (GrammarSpec("lark", 'root ::= "a" | "b"'), "GBNF (::=), and not in Lark"),
        (GrammarSpec("lark", 'start: "a" <[2]>'), "special token <[2]>"),
        (GrammarSpec("lark", "start: <|end|>"), "special token <|end|>"),
        (GrammarSpec("lark", "start: a\na[max_tokens=3]: /.*/"), "'max_tokens'"),
        (GrammarSpec("lark", 'start: %json {"x-guidance": {"lenient": true}}'), "x-guidance"),
        (GrammarSpec("lark", "start: nothing"), "nothing"),
        (GrammarSpec("lark", ""), "no start rule"),
        (GrammarSpec("lark", '{"grammars": []}'), "1(1)"),
    ],
)
def test_g2_what_cannot_be_held_to_is_refused_with_the_reason(backend, spec, reason):
    with pytest.raises(GrammarError) as caught:
        backend.compile(spec)

    assert reason in str(caught.value)
    assert len(str(caught.value)) < 600
    assert "no_forcing" not in str(caught.value), "our own lines are no business of the caller's"


def test_g2_the_text_of_a_refusal(backend):
    with pytest.raises(GrammarError) as caught:
        backend.compile(schema_spec({"contains": {}}))

    assert str(caught.value) == (
        'the JSON schema cannot be held to\n  Unimplemented keys: ["contains"]'
    )


def test_g2_lark_cannot_switch_our_options_off(backend):
    text = '%llguidance {"no_forcing": false}\nstart: "abc"'
    compiled = backend.compile(GrammarSpec("lark", text))

    assert accepts(compiled, b"abc"), "byte by byte"


# ------------------------------------------------------------------ G3: rollback, no sharing


def random_walk(state, rng, num_steps):
    """Advance by random allowed tokens; return them."""
    taken = []
    for _ in range(num_steps):
        ids = np.flatnonzero(mask_of(state))
        if not len(ids):
            break
        token_id = int(rng.choice(ids))
        assert state.advance(token_id)
        taken.append(token_id)
    return taken


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize(
    "spec",
    [schema_spec(ORDER), regex("(hello|stop)( one| two){2}"), choice("A", "AB", "hello one")],
    ids=["schema", "regex", "choice"],
)
def test_g3_rollback_restores_the_state(backend, spec, seed):
    rng = np.random.default_rng(seed)
    compiled = backend.compile(spec)
    state = compiled.start()
    kept = random_walk(state, rng, int(rng.integers(0, 12)))
    before, was_complete = mask_of(state), state.is_complete
    undone = random_walk(state, rng, int(rng.integers(0, 12)))
    if rng.integers(2):
        state.forced()
    assert not state.advance(EOS)
    state.rollback(len(undone))

    fresh = follow(compiled, kept)
    assert fresh is not None
    assert (mask_of(state) == before).all()
    assert (mask_of(fresh) == before).all()
    assert state.is_complete == fresh.is_complete == was_complete
    state.rollback(len(kept))
    assert (mask_of(state) == mask_of(compiled.start())).all()


def test_g3_a_token_that_may_not_come_changes_nothing(backend):
    state = backend.compile(regex("abc")).start()
    assert state.advance(ord("a"))
    before = mask_of(state)

    assert not state.advance(ord("x"))
    assert (mask_of(state) == before).all()
    state.rollback(1)
    assert state.advance(ord("a"))


def test_g3_two_states_share_nothing(backend):
    compiled = backend.compile(regex("(ab|cd)*"))
    one, other = compiled.start(), compiled.start()
    before = mask_of(other)

    assert one.advance(ord("a"))
    assert (mask_of(other) == before).all()
    assert other.advance(ord("c"))
    assert np.flatnonzero(mask_of(one)).tolist() == [ord("b")]


def test_forced_tokens_come_next(backend, tokenizer):
    compiled = backend.compile(schema_spec(ORDER | {"required": ["title", "qty"]}))
    state = compiled.start()
    assert state.advance(ord("{"))
    assert state.advance(ord('"'))
    forced = state.forced()

    assert tokenizer.decode(forced) == 'title"'
    assert all(map(state.advance, forced))
    free = backend.compile(regex(".*")).start()
    assert free.forced() == []


def test_forced_tokens_of_a_tokenizer_that_begins_texts_with_a_space():
    class Spaced(BytesTokenizer):
        def encode(self, text, add_special_tokens=True):
            return super().encode(" " + text, add_special_tokens)

    backend = LLGuidance(None, GrammarContext(Spaced(), VOCAB_SIZE))
    state = backend.compile(regex("title: [0-9]+")).start()
    forced = state.forced()

    assert forced
    assert all(map(state.advance, forced))
    backend.close()


# ------------------------------------------------------------------ G4: bounded


def deep(num_levels):
    schema = {"type": "integer"}
    for _ in range(num_levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def chain(num_links):
    links = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(num_links)}
    return {"$ref": "#/$defs/d0", "$defs": links | {f"d{num_links}": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (schema_spec(deep(200)), "it is nested too deeply$"),
        (schema_spec(chain(5000)), "nested too deeply"),
        (schema_spec({"enum": [f"value {i}" for i in range(100_000)]}), "too long"),
        (GrammarSpec("regex", "a" * 2_000_000), "too long"),
        (GrammarSpec("lark", "start: " + "(" * 1000 + '"a"' + ")" * 1000), "nested too deeply$"),
        (
            GrammarSpec("lark", "\n".join([
                "start: T0", *(f"T{i}: T{i + 1} T{i + 1}" for i in range(60)), 'T60: "b"'])),
            "too big",
        ),
    ],
    ids=["deep", "chain", "enum", "long", "brackets", "doubling"],
)  # fmt: skip
def test_g4_too_much_is_refused_soon(backend, spec, reason):
    started_s = time.monotonic()
    with pytest.raises(GrammarError, match=reason):
        backend.compile(spec)

    assert time.monotonic() - started_s < 15
    assert accepts(backend.compile(regex("a")), b"a"), "and the next one compiles"


def test_g4_compiling_that_does_not_end_is_ended():
    backend = byte_backend(options=LLGuidanceOptions(max_compile_s=1.0))
    for_ever = schema_spec({"type": "integer", "multipleOf": 99_999_989})
    started_s = time.monotonic()
    with pytest.raises(GrammarError, match="longer than 1 s"):
        backend.compile(for_ever)

    assert time.monotonic() - started_s < 10
    assert accepts(backend.compile(regex("a")), b"a")
    backend.close()
    backend.close()


def test_g4_a_text_that_needs_too_much_is_given_up():
    backend = byte_backend(options=LLGuidanceOptions(max_states=60))
    state = backend.compile(regex("(a|b)*a(a|b){12}c")).start()

    def go_on():
        for token_id in b"abbabaabbbabababbabaaabbba" * 4:
            mask_of(state)
            if not state.advance(token_id):
                mask_of(state)

    with pytest.raises(GrammarError, match="cannot be followed"):
        go_on()
    backend.close()


def test_packed_bits_are_little_endian(backend):
    mask = np.zeros(-(-VOCAB_SIZE // 32), dtype=np.uint32)
    backend.compile(regex("[ab]")).start().fill_mask(mask)

    assert [t for t in range(VOCAB_SIZE) if mask[t // 32] >> np.uint32(t % 32) & 1] == [97, 98]
    assert np.flatnonzero(allowed(mask)).tolist() == [97, 98]
