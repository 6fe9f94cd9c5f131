"""The promises of grammar back ends: G1 to G7, on a small vocabulary with tokens that overlap.

A form that a back end refuses as a whole is no form of its own: the others are tried.

Knows forms and masks. Does not know back ends.
"""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import GrammarError
from octavo.interfaces.grammar import GrammarBackend, GrammarContext, GrammarSpec
from octavo.testing.grammar_refusals import FORBIDDING, HOSTILE, IMPOSSIBLE
from octavo.testing.grammar_samples import SAMPLES, Sample
from octavo.testing.grammar_walks import (
    TOKENIZER,
    VOCAB_SIZE,
    accepts,
    allowed_ids,
    cut,
    is_same,
    mask_of,
    sight_of,
    sights,
    walk,
)
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.suite import Suite
from octavo.testing.word_tokenizer import EOS, WordTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.grammar import CompiledGrammar
    from octavo.testing.subjects import Subject

#: how long one grammar may take to be compiled, or refused
_PATIENCE_S: Final = 40.0


def _built(subject: Subject) -> Any:
    return subject.build(context=GrammarContext(WordTokenizer(), VOCAB_SIZE))


promises = Promises("grammar", GrammarBackend, _built)


@dataclass(frozen=True, slots=True)
class _Case:
    """A sample and its grammar."""

    sample: Sample
    compiled: CompiledGrammar

    @property
    def name(self) -> str:
        """Return what it is called in counter-examples."""
        return f"{self.sample.spec.form} {self.sample.spec.text!r:.60}"


def _backend(subject: Subject) -> GrammarBackend:
    """Return one back end for all checks; it is closed with the subject."""
    if _backend not in subject.memory:
        backend = _built(subject)
        subject.ends.append(backend.close)
        subject.memory[_backend] = backend
    found: GrammarBackend = subject.memory[_backend]
    return found


def _cases(subject: Subject) -> list[_Case]:
    """Return the samples whose forms it compiles. Raises PromiseBroken when it has none."""
    if _cases not in subject.memory:
        found = []
        for sample in SAMPLES:
            compiled = _compiled(subject, sample.spec)
            if compiled is not None:
                found.append(_Case(sample, compiled))
        subject.memory[_cases] = found
    cases: list[_Case] = subject.memory[_cases]
    if not cases:
        raise PromiseBroken("it compiles none of the forms")
    return cases


def _compiled(subject: Subject, spec: GrammarSpec) -> CompiledGrammar | None:
    """Return a compiled grammar, None for one that is refused."""
    try:
        return _backend(subject).compile(spec)
    except GrammarError:
        return None


def _rngs(subject: Subject) -> Iterator[random.Random]:
    """Yield generators of walks: the same ones each time."""
    for seed in range(max(1, round(6 * subject.effort))):
        yield random.Random(seed)  # noqa: S311 - no secrets are drawn from it


@promises.keeps("G1")
def texts_of_the_form_are_accepted_however_they_are_cut(subject: Subject) -> None:
    """And texts that have it not are not."""
    for case in _cases(subject):
        for rng in _rngs(subject):
            for text in case.sample.good:
                is_whole, num = accepts(case.compiled, cut(text, rng))
                if not is_whole:
                    raise PromiseBroken(
                        f"{case.name}: {text!r} is not accepted, from token {num} on"
                    )
            for text in case.sample.bad:
                if accepts(case.compiled, cut(text, rng))[0]:
                    raise PromiseBroken(f"{case.name}: {text!r} is accepted, and has not the form")


@promises.keeps("G1")
def whatever_is_complete_has_the_form(subject: Subject) -> None:
    """After random tokens; and where each text of the form counts, none is missed."""
    for case in _cases(subject):
        for rng in _rngs(subject):
            state, data = case.compiled.start(), b""
            for token_id in [*walk(case.compiled.start(), rng), None]:
                text = data.decode("utf-8", "replace")
                is_whole = case.sample.holds(text) and (
                    case.sample.is_free or text.encode() == data
                )
                if state.is_complete and not is_whole:
                    raise PromiseBroken(f"{case.name}: {text!r} is complete, and has not the form")
                if case.sample.is_exact and is_whole and not state.is_complete:
                    raise PromiseBroken(f"{case.name}: {text!r} has the form, and is not complete")
                if token_id is not None:
                    state.advance(token_id)
                    data += TOKENIZER.token_bytes(token_id)


@promises.keeps("G2")
def what_cannot_be_is_refused(subject: Subject) -> str:
    """With GrammarError, whatever is wrong with it."""
    refused = ""
    for spec in IMPOSSIBLE:
        try:
            _backend(subject).compile(spec)
        except GrammarError as error:
            refused = error.headline
        else:
            raise PromiseBroken(f"{spec.form} {spec.text!r} compiles, and cannot be held to")
    return refused


@promises.keeps("G2")
def no_keyword_of_a_schema_is_passed_over(subject: Subject) -> None:
    """It is held to, or the schema is refused."""
    for schema, text in FORBIDDING:
        compiled = _compiled(subject, GrammarSpec("json_schema", json.dumps(schema)))
        if compiled is not None and accepts(compiled, list(text.encode()))[0]:
            raise PromiseBroken(f"the schema {schema} forbids {text!r}, which is accepted")


@promises.keeps("G3")
def rollback_restores_what_was(subject: Subject) -> None:
    """Masks, what is forced and whether the text is complete, after any number of tokens."""
    for case in _cases(subject):
        for rng in _rngs(subject):
            state = case.compiled.start()
            at_start = sight_of(state)
            kept = walk(state, rng, 12)
            before = sight_of(state)
            undone = walk(state, rng, 12)
            state.forced()
            state.advance(EOS)
            state.rollback(len(undone))
            if not is_same(sight_of(state), before):
                raise PromiseBroken(
                    f"{case.name}: {len(undone)} tokens taken back after {kept} leave another state"
                )
            state.rollback(len(kept))
            if not is_same(sight_of(state), at_start):
                raise PromiseBroken(f"{case.name}: all tokens taken back leave another state")


@promises.keeps("G3")
def two_states_share_nothing(subject: Subject) -> None:
    """Of one compiled grammar, followed in turns."""
    for case in _cases(subject):
        for rng in _rngs(subject):
            walks = [walk(case.compiled.start(), rng, 14) for _ in range(2)]
            alone = [list(sights(case.compiled.start(), ids)) for ids in walks]
            both = [sights(case.compiled.start(), ids) for ids in walks]
            for step in range(max(map(len, alone))):
                for which in (0, 1):
                    if step >= len(alone[which]):
                        continue
                    if not is_same(next(both[which]), alone[which][step]):
                        raise PromiseBroken(
                            f"{case.name}: behind {walks[which][:step]} a state is another one "
                            f"when {walks[1 - which][:step]} is followed beside it"
                        )


@promises.keeps("G4")
def compiling_comes_to_an_end(subject: Subject) -> None:
    """Also of grammars that are made to take for ever; others compile meanwhile and after."""
    backend = _backend(subject)
    for spec in HOSTILE:
        started_s = time.monotonic()
        worker = threading.Thread(target=_compiled, args=(subject, spec), daemon=True)
        worker.start()
        worker.join(_PATIENCE_S)
        if worker.is_alive():
            raise PromiseBroken(
                f"compiling {spec.form} {spec.text!r:.60} takes more than {_PATIENCE_S:g} s "
                f"(since {time.monotonic() - started_s:.0f} s)"
            )
    plain = _cases(subject)[0].sample
    if not accepts(backend.compile(plain.spec), list(plain.good[0].encode()))[0]:
        raise PromiseBroken("after hostile grammars it does not compile a plain one")


@promises.keeps("G5")
def masks_and_steps_agree_on_every_token(subject: Subject) -> None:
    """Of the vocabulary, after random tokens; what is refused changes nothing."""
    for case in _cases(subject):
        for rng in _rngs(subject):
            state = case.compiled.start()
            walked = walk(state, rng, 16)
            before = sight_of(state)
            for token_id in range(VOCAB_SIZE):
                is_followed = state.advance(token_id)
                if is_followed != before[0][token_id]:
                    verb = "is" if is_followed else "is not"
                    raise PromiseBroken(
                        f"{case.name}: behind {walked} token {token_id} {verb} followed, and its "
                        f"bit in the mask is {int(before[0][token_id])}"
                    )
                if is_followed:
                    state.rollback(1)
            if not is_same(sight_of(state), before):
                raise PromiseBroken(f"{case.name}: trying tokens behind {walked} changed the state")


@promises.keeps("G6")
def forced_tokens_are_all_that_may_come(subject: Subject) -> str | None:
    """One after the other; a token that may come instead begins with the same bytes."""
    num_forced = 0
    for case in _cases(subject):
        for rng in _rngs(subject):
            state = case.compiled.start()
            walked = walk(state, rng, 16)
            forced = state.forced()
            if not forced:
                continue
            num_forced += 1
            where = f"{case.name}: behind {walked}, where {forced} are forced,"
            if state.is_complete:
                raise PromiseBroken(f"{where} the text may end")
            data = b"".join(map(TOKENIZER.token_bytes, forced))
            for token_id in allowed_ids(mask_of(state)):
                other = TOKENIZER.token_bytes(token_id)
                if not (other.startswith(data) or data.startswith(other)):
                    raise PromiseBroken(f"{where} token {token_id} ({other!r}) may come")
            for token_id in forced:
                if not mask_of(state)[token_id] or not state.advance(token_id):
                    raise PromiseBroken(f"{where} token {token_id} may not come")
    return None if num_forced else "it never says what is forced"


@promises.keeps("G7")
def markers_and_what_is_no_token_never_come(subject: Subject) -> None:
    """Wherever a text is."""
    outside = [*TOKENIZER.special_ids, *range(TOKENIZER.vocab_size, VOCAB_SIZE)]
    for case in _cases(subject):
        for rng in _rngs(subject):
            state = case.compiled.start()
            walked = walk(state, rng)
            mask = mask_of(state)
            wrong = [one for one in outside if mask[one]]
            wrong += [VOCAB_SIZE + one for one in allowed_ids(mask[VOCAB_SIZE:])]
            wrong += [one for one in (*outside, -1, VOCAB_SIZE, 10**9) if state.advance(one)]
            if wrong:
                raise PromiseBroken(f"{case.name}: behind {walked} {wrong} may come")


class GrammarSuite(Suite, promises=promises):
    """The tests of a grammar back end. It needs no sample."""
