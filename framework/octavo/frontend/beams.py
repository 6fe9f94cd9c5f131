"""The texts that a beam search follows, what may come after each, and how they are compared.

Knows ids, logprobs, scores and stop strings. Does not know requests or how a search goes on
(`octavo.frontend.beam_search`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from octavo.errors import RequestError
from octavo.frontend.detokenizer import detokenizer_of
from octavo.frontend.stop import StopChecker

if TYPE_CHECKING:
    from octavo.engine.messages import EngineInfo, TokenLogprobs
    from octavo.frontend.detokenizer import Detokenizer
    from octavo.frontend.preprocess import Call, PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class SearchRules:
    """How beams are compared: `end_token_ids` are not counted at the end of a text.

    An end of sequence is not counted either where it ends nothing (`ignore_eos`), as in vLLM.
    A step asks for the `num_candidates` likeliest tokens after every beam.
    """

    length_penalty: float
    end_token_ids: frozenset[int]
    num_candidates: int

    def score(self, num_prompt_tokens: int, beam: Beam) -> float:
        """Return what beams are ordered by: the logprob per token, if the penalty is 1."""
        is_ended = beam.token_ids[-1] in self.end_token_ids
        num_tokens = num_prompt_tokens + len(beam.token_ids) - is_ended
        return self.score_at(num_tokens, beam.cum_logprob)

    def score_at(self, num_tokens: int, cum_logprob: float) -> float:
        """Return the score of a text of so many tokens."""
        return float(cum_logprob / num_tokens**self.length_penalty)


def search_rules(
    call: Call, eos_token_ids: tuple[int, ...], info: EngineInfo
) -> SearchRules | None:
    """Return the rules of a search; None where none is asked for.

    Raises RequestError for more beams than there are tokens for, and for a form, which no step
    could hold to.
    """
    if call.length_penalty is None:
        return None
    if call.params.structured_outputs is not None:
        raise RequestError(
            "a beam search cannot hold its texts to a form",
            "leave the form, or the tool that must be called, or the beam search out",
            param="structured_outputs",
        )
    width = call.params.n
    num_candidates = 2 * width
    if num_candidates > info.vocab_size:
        raise RequestError(
            f"a beam_width of {width} needs {num_candidates} different tokens, "
            f"and the vocabulary has {info.vocab_size}",
            param="beam_width",
        )
    end_token_ids = frozenset((*eos_token_ids, *(call.params.stop_token_ids or ())))
    return SearchRules(call.length_penalty, end_token_ids, num_candidates)


@dataclass(frozen=True, slots=True)
class Beam:
    """One text so far, as ids after the prompt. `logprobs` has an entry for each of them."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    cum_logprob: float
    reader: StopReader | None
    finish_reason: str = "length"
    stop_reason: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token after one beam: the one at `position` among the likeliest."""

    beam: Beam
    entry: TokenLogprobs
    position: int
    cum_logprob: float

    @property
    def token_id(self) -> int:
        """Return the token's id."""
        return self.entry.top_ids[self.position]

    def as_beam(self, reader: StopReader | None) -> Beam:
        """Return the beam with this token behind it."""
        entry = self.entry
        logprob = entry.top_logprobs[self.position]
        chosen = replace(entry, token_id=self.token_id, logprob=logprob, rank=self.position + 1)
        beam = self.beam
        token_ids = [*beam.token_ids, self.token_id]
        return Beam(token_ids, [*beam.logprobs, chosen], self.cum_logprob, reader)


class StopReader:
    """The text of one beam, looked through for stop strings."""

    def __init__(self, detokenizer: Detokenizer, checker: StopChecker) -> None:
        self._detokenizer = detokenizer
        self._checker = checker

    def fork(self) -> StopReader:
        """Return another one that goes on from here by itself."""
        return StopReader(self._detokenizer.fork(), self._checker.fork())

    def has_stopped_at(self, token_id: int, num_tokens: int) -> bool:
        """Return whether a token, number `num_tokens` of the text, completes a stop string."""
        text = self._detokenizer.push([token_id])
        return self._checker.push(text, num_tokens)[1] is not None


def stop_reader(call: PreparedCall, tokenizer: Tokenizer) -> StopReader | None:
    """Return what reads the text of a call's first beam; None where no stop string is given."""
    params = call.params
    if not params.stop_strings:
        return None
    detokenizer = detokenizer_of(
        tokenizer,
        call.prompt_token_ids,
        skip_special_tokens=params.skip_special_tokens,
        visible_ids=call.visible_ids,
    )
    return StopReader(detokenizer, StopChecker(params.stop_strings))
