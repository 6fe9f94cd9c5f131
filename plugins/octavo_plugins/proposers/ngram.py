"""`ngram`: what followed the same words before follows them again (prompt lookup).

The last tokens of a request are looked up in all that came before them, prompt and output alike:
the longest match counts, and of those the latest, as texts repeat what they said last. What
stands after the match is proposed; where that runs into the end of the text, it goes on with the
drafts themselves, so that a period of three tokens is continued for as long as is wanted.

A match of n tokens is worth n drafts: one word that came before says little, a whole line says
much. (Measured with SmolLM2, each proposed as far as allowed: a match of 2 tokens had 0.9 of 5
drafts right, one of 5 had 4.5.)

Source: A. Saxena, prompt lookup decoding, 2023. Knows token ids. Does not know models, steps or
what a draft costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from octavo.interfaces.proposer import EngineProposer
from octavo.plugin.options import ComponentOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from octavo.interfaces.proposer import DraftView


class NgramOptions(ComponentOptions):
    """Options of `ngram`."""

    num_drafts: int = Field(5, ge=1, le=64, description="drafts of one request and step, at most")
    min_ngram: int = Field(3, ge=1, le=64, description="tokens that must match, at least")
    max_ngram: int = Field(5, ge=1, le=64, description="tokens that are looked up, at most")

    @model_validator(mode="after")
    def _is_range(self) -> Self:
        if self.min_ngram > self.max_ngram:
            raise ValueError(f"min-ngram {self.min_ngram} is more than max-ngram {self.max_ngram}")
        return self


class Ngram(EngineProposer):
    """Proposes what followed the latest longest match of a request's last tokens."""

    Options = NgramOptions

    def __init__(self, options: NgramOptions | None = None) -> None:
        super().__init__(options)
        settings = options or NgramOptions()
        self._num_drafts = settings.num_drafts
        self._lengths = range(settings.min_ngram, settings.max_ngram + 1)
        self._indexes: dict[str, NgramIndex] = {}

    @property
    def max_drafts(self) -> int:
        """Return the most drafts that are ever proposed for one request and step."""
        return self._num_drafts

    def propose(self, request: DraftView, max_tokens: int) -> Sequence[int]:
        """Return what may follow; as many tokens as match, at most."""
        index = self._indexes.get(request.request_id)
        if index is None:
            index = self._indexes[request.request_id] = NgramIndex(self._lengths)
        ids = request.token_ids
        index.extend(ids)
        end = index.find(ids)
        limit = min(max_tokens, self._num_drafts)
        if end is None or limit <= 0:
            return ()
        return continuation(ids, end, match_length(ids, end, limit))

    def forget(self, request_id: str) -> None:
        """Drop the index of a request."""
        self._indexes.pop(request_id, None)


class NgramIndex:
    """Where each n-gram of one growing sequence ended last, for some values of n.

    Each token is entered once, for each n: a lookup costs the same however long the sequence is.
    n-grams are kept by their hashes, and compared when found.
    """

    __slots__ = ("_ends", "_lengths", "_num_indexed")

    def __init__(self, lengths: range) -> None:
        self._lengths = lengths
        self._ends: dict[int, int] = {}
        self._num_indexed = 0

    def extend(self, ids: Sequence[int]) -> None:
        """Enter the n-grams that end before the last token: the last ones are what is looked up.

        `ids` is the sequence of the calls before, grown or as it was.
        """
        ends, lengths = self._ends, self._lengths
        stop = len(ids)
        for end in range(max(1, self._num_indexed), stop):
            window = tuple(ids[max(0, end - lengths[-1]) : end])
            for length in lengths:
                if length > end:
                    break
                ends[hash(window[-length:])] = end
        self._num_indexed = max(self._num_indexed, stop)

    def find(self, ids: Sequence[int]) -> int | None:
        """Return where the latest of the longest matches of the last tokens ends, or None."""
        stop = len(ids)
        window = tuple(ids[max(0, stop - self._lengths[-1]) :])
        for length in reversed(self._lengths):
            if length > len(window):
                continue
            suffix = window[-length:]
            end = self._ends.get(hash(suffix))
            if end is not None and tuple(ids[end - length : end]) == suffix:
                return end
        return None


def match_length(ids: Sequence[int], end: int, limit: int) -> int:
    """Return how many tokens before `end` are the last ones of the sequence, up to `limit`."""
    length, stop = 0, len(ids)
    while length < min(limit, end) and ids[end - 1 - length] == ids[stop - 1 - length]:
        length += 1
    return length


def continuation(ids: Sequence[int], start: int, num_tokens: int) -> list[int]:
    """Return the tokens from `start` on; after the last one, those returned already follow."""
    tokens = list(ids[start : start + num_tokens])
    period = len(ids) - start
    while len(tokens) < num_tokens:
        tokens.append(tokens[len(tokens) - period])
    return tokens
