"""Grammar back ends that are wrong on purpose: each is caught by the promise that it breaks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mutants import assert_killed, name_of
from octavo.errors import GrammarError
from octavo.interfaces.grammar import CompiledGrammar, GrammarSpec, GrammarState
from octavo.testing.word_tokenizer import EOS
from octavo_plugins.grammars.llguidance_grammar import LLGuidance
from octavo_plugins.grammars.options import LLGuidanceOptions


class Around(GrammarState):
    """Another state, as it is; mutants change one thing."""

    def __init__(self, inner, spec):
        self.inner = inner
        self.spec = spec

    def fill_mask(self, mask):
        self.inner.fill_mask(mask)

    def advance(self, token_id):
        return self.inner.advance(token_id)

    def rollback(self, num_tokens):
        self.inner.rollback(num_tokens)

    def forced(self):
        return self.inner.forced()

    @property
    def is_complete(self):
        return self.inner.is_complete


class CompiledAround(CompiledGrammar):
    def __init__(self, inner, state, spec):
        self.inner = inner
        self.state = state
        self.spec = spec

    def start(self):
        return self.state(self.inner.start(), self.spec)


class Mutant(LLGuidance):
    """llguidance, with states of its own. Quick, as most of it is not what is tried."""

    State = Around

    def __init__(self, options, context):
        super().__init__(LLGuidanceOptions(max_compile_s=2), context)

    def compile(self, spec):
        return CompiledAround(super().compile(spec), self.State, spec)


class MissesLongTokens(Mutant):
    class State(Around):
        def fill_mask(self, mask):
            super().fill_mask(mask)
            mask[256 // 32 :] = 0  # words of several bytes

        def advance(self, token_id):
            return token_id < EOS and super().advance(token_id)


class AlwaysComplete(Mutant):
    class State(Around):
        @property
        def is_complete(self):
            return True


class NeverComplete(Mutant):
    class State(Around):
        @property
        def is_complete(self):
            return False


class AnyJson(Mutant):
    """Forgets what the schema says of the values."""

    def compile(self, spec):
        if spec.form == "json_schema":
            super().compile(spec)
            return super().compile(GrammarSpec("json_object"))
        return super().compile(spec)


class PassesOverErrors(Mutant):
    def compile(self, spec):
        try:
            return super().compile(spec)
        except GrammarError:
            return super().compile(GrammarSpec("regex", "(?s).*"))


class DropsUnknownKeywords(Mutant):
    """Takes away what it cannot compile, until it compiles."""

    def compile(self, spec):
        if spec.form != "json_schema":
            return super().compile(spec)
        try:
            return super().compile(spec)
        except GrammarError:
            schema = json.loads(spec.text)
            if not isinstance(schema, dict):
                raise
            kept = {name: schema[name] for name in ("type", "items", "$defs") if name in schema}
            if kept == schema:
                raise
            return super().compile(GrammarSpec("json_schema", json.dumps(kept)))


class RollsBackOneLess(Mutant):
    class State(Around):
        def rollback(self, num_tokens):
            super().rollback(max(0, num_tokens - 1))


class ForgetsCompletionOnRollback(Mutant):
    class State(Around):
        was_complete = False

        def advance(self, token_id):
            is_followed = super().advance(token_id)
            self.was_complete = self.was_complete or self.inner.is_complete
            return is_followed

        @property
        def is_complete(self):
            return self.was_complete or self.inner.is_complete


class SharesOneState(Mutant):
    """All texts of a grammar go on where the last one was."""

    def compile(self, spec):
        compiled = super().compile(spec)
        shared = compiled.start()
        compiled.start = lambda: shared
        return compiled


class FollowsWhatIsMasked(Mutant):
    """A token that may not come is taken all the same, and nothing remembered of it."""

    class State(Around):
        def advance(self, token_id):
            return super().advance(token_id) or token_id == ord("q")


class RefusalMoves(Mutant):
    """A wrong token leaves the state one token further back."""

    class State(Around):
        def __init__(self, inner, spec):
            super().__init__(inner, spec)
            self.num = 0

        def advance(self, token_id):
            is_followed = super().advance(token_id)
            if not is_followed and self.num and 0 <= token_id < EOS:
                self.inner.rollback(1)
                self.num -= 1
            self.num += is_followed
            return is_followed

        def rollback(self, num_tokens):
            self.num -= num_tokens
            super().rollback(num_tokens)


class ForcesTheFirstAllowed(Mutant):
    class State(Around):
        def forced(self):
            words = np.zeros(16, dtype=np.uint32)
            self.fill_mask(words)
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")
            return np.flatnonzero(bits)[:1].tolist()


class ForcesThePast(Mutant):
    class State(Around):
        def forced(self):
            forced = super().forced()
            return forced[::-1]


class AllowsTheEnd(Mutant):
    """Says by the mask that the text may end, as some libraries do."""

    class State(Around):
        def fill_mask(self, mask):
            super().fill_mask(mask)
            if self.is_complete:
                mask[EOS // 32] |= np.uint32(1 << EOS % 32)


class LeavesTheTail(Mutant):
    """Does not write the words behind its own vocabulary."""

    class State(Around):
        def fill_mask(self, mask):
            own = np.zeros(9, dtype=np.uint32)
            super().fill_mask(own)
            mask[:9] = own


KILLED = [
    (MissesLongTokens, "G1"),
    (AlwaysComplete, "G1"),
    (NeverComplete, "G1"),
    (AnyJson, "G1"),
    (PassesOverErrors, "G2"),
    (DropsUnknownKeywords, "G2"),
    (RollsBackOneLess, "G3"),
    (ForgetsCompletionOnRollback, "G3"),
    (SharesOneState, "G3"),
    (FollowsWhatIsMasked, "G5"),
    (RefusalMoves, "G5"),
    (ForcesTheFirstAllowed, "G6"),
    (ForcesThePast, "G6"),
    (AllowsTheEnd, "G7"),
    (LeavesTheTail, "G7"),
]


@pytest.mark.parametrize(("mutant", "number"), KILLED, ids=name_of)
def test_the_kit_kills(mutant, number):
    assert_killed("grammar", mutant, number)
