"""Both back ends on schemas that nobody wrote: what is accepted, and what is made by chance."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from drawn_schemas import changed, escaped, is_of, schema_of, texts_of, values_of
from grammars import byte_backend, schema_spec
from octavo.errors import GrammarError
from octavo.interfaces.grammar import GrammarContext
from octavo_plugins.grammars.xgrammar_grammar import XGrammar
from scripted import VOCAB_SIZE, BytesTokenizer

NUM_WORDS = -(-VOCAB_SIZE // 32)
#: bytes that lead to an end of a text, and those that JSON is made of
CLOSING, USUAL = b'"}]', b",:{[0123456789truefalsn\\ub"


@pytest.fixture(scope="module", params=["llguidance", "xgrammar"])
def backend(request):
    context = GrammarContext(BytesTokenizer(), VOCAB_SIZE)
    backend = byte_backend() if request.param == "llguidance" else XGrammar(None, context)
    yield backend
    backend.close()


@pytest.fixture(
    scope="module", params=[range(80), pytest.param(range(500, 1000), marks=pytest.mark.full)]
)
def drawn(request, backend):
    """Return schemas that compile, each with what it is in the grammar, and with its dice."""
    found = []
    for seed in request.param:
        rng = random.Random(seed)  # noqa: S311 - nothing is secret
        schema = schema_of(rng)
        try:
            found.append((schema, backend.compile(schema_spec(schema)), rng))
        except GrammarError:
            continue
    assert len(found) > len(request.param) * 0.4
    return found


def is_accepted(compiled, text):
    state = compiled.start()
    return all(map(state.advance, text.encode())) and state.is_complete


def made(compiled, rng):
    """Return a whole text of random bytes that may come; None where it does not end soon."""
    state, text = compiled.start(), bytearray()
    mask = np.zeros(NUM_WORDS, dtype=np.uint32)
    while len(text) < 500 and not (state.is_complete and rng.random() < 0.5):
        state.fill_mask(mask)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:256]
        ids = np.flatnonzero(bits).tolist()
        if not ids:
            assert state.is_complete, bytes(text)
            break
        weights = [_weight(one, len(text)) for one in ids]
        text.append(rng.choices(ids, weights)[0])
        assert state.advance(text[-1])
    return text.decode() if state.is_complete else None


def _weight(byte, num_before):
    if byte in CLOSING:
        return 60 if num_before > 150 else 8
    return 4 if byte in USUAL else 0.02 if byte in b" \n\t\r" else 0.3


def test_g1_what_is_of_a_schema_is_accepted_and_what_is_not_is_not(drawn):
    num_of = num_others = 0
    for schema, compiled, rng in drawn:
        for value in values_of(schema, rng, 6):
            num_of += 1
            for text in texts_of(value):
                assert is_accepted(compiled, text), (schema, text)
            other = changed(value, rng)
            if is_of(schema, other):
                continue
            num_others += 1
            for text in (json.dumps(other), escaped(other)):
                assert not is_accepted(compiled, text), (schema, text)
    assert min(num_of, num_others) > len(drawn)


def test_g1_what_is_made_by_chance_is_of_the_schema(drawn):
    num_made = 0
    for schema, compiled, rng in drawn:
        for _ in range(3):
            text = made(compiled, rng)
            num_made += text is not None
            assert text is None or is_of(schema, json.loads(text)), (schema, text)
    assert num_made > 2 * len(drawn)
