"""The promises of tokenizers: K1 to K8, on one that the suite's sample leads to.

`sample`: the path of a model whose tokenizer is stored in this format.

Knows texts and ids. Does not know vocabularies or how they are stored.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from octavo.errors import ModelLoadError, OctavoError
from octavo.frontend.detokenizer import detokenizer_of
from octavo.interfaces.tokenizer import Tokenizer, TokenizerFormat
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.samples import path_of_sample
from octavo.testing.searching import for_all
from octavo.testing.suite import Suite
from octavo.testing.tokenizer_texts import TEXTS, hard_texts, texts

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.testing.subjects import Subject


promises = Promises("tokenizer", TokenizerFormat)

_WHAT = "the path of a model with such a tokenizer"


def _path(subject: Subject) -> Path:
    return path_of_sample(subject, _WHAT)


def loaded(subject: Subject) -> Tokenizer:
    """Return the sample's tokenizer, loaded once."""
    if loaded not in subject.memory:
        subject.memory[loaded] = subject.build().load(_path(subject))
    tokenizer: Tokenizer = subject.memory[loaded]
    return tokenizer


@promises.keeps("K1")
def decoding_joins_the_bytes_of_tokens(subject: Subject) -> str | None:
    """Of texts, and of ids in any order."""
    tokenizer = loaded(subject)
    if not tokenizer.has_exact_bytes:
        return "its tokens are no joins of bytes (has_exact_bytes is False)"

    def body(ids: list[int]) -> None:
        joined = b"".join(tokenizer.token_bytes(one) for one in ids).decode("utf-8", "replace")
        if tokenizer.strips_leading_space:
            joined = joined.removeprefix(" ")
        text = tokenizer.decode(ids, skip_special_tokens=False)
        if text != joined:
            raise PromiseBroken(f"decode({ids}) is {text!r}, and the bytes joined are {joined!r}")

    for text in TEXTS:
        body(tokenizer.encode(text, add_special_tokens=False))
    ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12)
    for_all(subject, ids, body, examples=80)
    return None


@promises.keeps("K2")
def a_marker_is_one_id_wherever_it_stands(subject: Subject) -> None:
    """Whatever surrounds it."""
    tokenizer = loaded(subject)
    for token_id in sorted(tokenizer.special_ids)[:8]:
        marker = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        if not marker or tokenizer.token_to_id(marker) != token_id:
            continue  # it is written in another way than it is spelt
        for around in ("{}", "a{}b", " {} ", "{0}{0}", "\n{}é"):
            text = around.format(marker)
            ids = tokenizer.encode(text, add_special_tokens=False)
            if ids.count(token_id) != text.count(marker):
                raise PromiseBroken(
                    f"{text!r} becomes {ids}, without one {token_id} per {marker!r}"
                )


@promises.keeps("K3")
def encoding_never_fails(subject: Subject) -> None:
    """Also for lone surrogates, control characters and what nobody writes."""
    tokenizer = loaded(subject)

    def body(text: str) -> None:
        ids = tokenizer.encode(text)
        if not all(0 <= one < tokenizer.vocab_size for one in ids):
            raise PromiseBroken(
                f"{text!r} becomes {ids}, of a vocabulary of {tokenizer.vocab_size}"
            )

    for_all(subject, st.text(st.characters(), max_size=30), body, examples=80)
    lone, marked = tokenizer.encode("a\ud800b"), tokenizer.encode("a\ufffdb")
    if lone != marked:
        raise PromiseBroken(f"a lone surrogate is read as {lone}, and U+FFFD as {marked}")


@promises.keeps("K4")
def ids_are_below_the_size_of_the_vocabulary(subject: Subject) -> None:
    """Those of all properties; outside there is no text."""
    tokenizer = loaded(subject)
    size = tokenizer.vocab_size
    single = [tokenizer.bos_token_id, tokenizer.eos_token_id]
    every = {*single, *tokenizer.eos_token_ids, *tokenizer.special_ids} - {None}
    wrong = [one for one in every if one is not None and not 0 <= one < size]
    if wrong:
        raise PromiseBroken(f"ids {wrong} are not within the vocabulary of {size}")
    for outside in (size, size + 1000, -1):
        given = tokenizer.token_bytes(outside), tokenizer.id_to_token(outside)
        if given != (b"", None) or tokenizer.decode([outside]) != "":
            raise PromiseBroken(f"id {outside} is outside of the vocabulary, and is {given}")


@promises.keeps("K5")
def a_text_comes_back(subject: Subject) -> str | None:
    """Of all planes, with every space and control at its ends, and at random."""
    tokenizer = loaded(subject)
    if not tokenizer.has_exact_bytes:
        return "it does not keep bytes (has_exact_bytes is False)"

    spelt = _spelt(tokenizer)

    def body(text: str) -> None:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if not all(_is_spelt(one, spelt) for one in text):  # some bytes are no tokens of it
            silent = [one for one in ids if not tokenizer.token_bytes(one)]
            if silent:
                raise PromiseBroken(f"{text!r} becomes {ids}, of which {silent} are no text")
            return
        wanted = text.removeprefix(" ") if tokenizer.strips_leading_space else text
        again = tokenizer.decode(ids)
        if again not in {text, wanted}:
            raise PromiseBroken(f"{text!r} comes back as {again!r}")

    for text in (*TEXTS, *hard_texts()):
        body(text)
    for_all(subject, texts(), body, examples=200)
    return None


def _spelt(tokenizer: Tokenizer) -> set[bytes]:
    """Return the texts of all tokens, as bytes."""
    return {tokenizer.token_bytes(one) for one in range(tokenizer.vocab_size)}


def _is_spelt(character: str, spelt: set[bytes]) -> bool:
    """Return whether a character is a token, or its bytes are."""
    whole = character.encode()
    return whole in spelt or all(bytes([one]) in spelt for one in whole)


@promises.keeps("K6")
def every_split_streams_the_same_text(subject: Subject) -> None:
    """Token by token, in two pieces cut anywhere, and in random pieces."""
    tokenizer = loaded(subject)
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        wanted = tokenizer.decode(ids)
        cuts = [list(range(1, len(ids))), *([cut] for cut in range(1, len(ids)))]
        cuts.append(sorted(random.Random(0).sample(range(len(ids) + 1), len(ids) // 2)))  # noqa: S311
        for cut in cuts:
            got = _streamed(tokenizer, ids, cut)
            if got != wanted:
                raise PromiseBroken(f"{text!r} cut at {cut} streams {got!r}, and is {wanted!r}")


def _streamed(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> str:
    detokenizer = detokenizer_of(tokenizer, ())
    parts = [
        detokenizer.push(ids[first:last])
        for first, last in zip([0, *cuts], [*cuts, len(ids)], strict=True)
    ]
    return "".join(parts) + detokenizer.finish()


@promises.keeps("K7")
def spellings_lead_there_and_back(subject: Subject) -> None:
    """Each id has one spelling, which is its own."""
    tokenizer = loaded(subject)
    step = max(1, tokenizer.vocab_size // 500)
    for token_id in range(0, tokenizer.vocab_size, step):
        token = tokenizer.id_to_token(token_id)
        if token is not None and tokenizer.token_to_id(token) != token_id:
            raise PromiseBroken(
                f"id {token_id} is spelt {token!r}, which is id {tokenizer.token_to_id(token)}"
            )
    if tokenizer.token_to_id("no such token, surely") is not None:
        raise PromiseBroken("a token that is not there has an id")


@promises.keeps("K8")
def a_path_without_one_is_told_and_refused(subject: Subject) -> str:
    """`why_not` has reasons, none for the sample, and `load` raises the typed error."""
    one: TokenizerFormat = subject.build()
    if one.why_not(_path(subject)):
        raise PromiseBroken(
            f"why_not has reasons against the sample: {one.why_not(_path(subject))}"
        )
    nowhere = _path(subject).parent / "there is no such path"
    if not one.why_not(nowhere):
        raise PromiseBroken("why_not has no reason against a path that does not exist")
    try:
        one.load(nowhere)
    except ModelLoadError as error:
        return error.headline
    except OctavoError as error:
        raise PromiseBroken(f"load raises {type(error).__name__}, not ModelLoadError") from error
    raise PromiseBroken("a path that does not exist is loaded")


class TokenizerSuite(Suite, promises=promises):
    """The tests of a tokenizer's format, on the sample that it loads."""
