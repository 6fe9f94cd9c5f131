"""Proposers that know what will come: all right, all wrong, or right for a while.

They are made from finished texts (prompt and output, as ids). Classes, so that `LLM(proposer=...)`
takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.proposer import EngineProposer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.interfaces.proposer import DraftView

#: the number of drafts, and how many of them are right, at a place in a text
Plan = tuple[int, int]


def knowing(
    texts: Sequence[Sequence[int]], plan: Callable[[int], Plan], most: int = 5
) -> type[EngineProposer]:
    """Return a proposer that continues `texts` as `plan(len(tokens so far))` says.

    A wrong draft is the right one plus one, so that it is a valid token but never the model's.
    Texts that nobody knows are continued with nothing. Where texts begin alike, the first counts.
    """

    class Knowing(EngineProposer):
        name = "knowing"

        @property
        def max_drafts(self) -> int:
            return most

        def propose(self, request: DraftView, max_tokens: int) -> Sequence[int]:
            tokens = list(request.token_ids)
            place = len(tokens)
            for text in texts:
                if list(text[:place]) == tokens:
                    num_drafts, num_right = plan(place)
                    rest = text[place : place + min(num_drafts, max_tokens)]
                    return [t if i < num_right else t ^ 1 for i, t in enumerate(rest)]
            return ()

    return Knowing


def all_right(texts: Sequence[Sequence[int]], most: int = 5) -> type[EngineProposer]:
    """Return a proposer that is never wrong."""
    return knowing(texts, lambda place: (most, place * 0 + most), most)


def all_wrong(texts: Sequence[Sequence[int]], most: int = 5) -> type[EngineProposer]:
    """Return a proposer that is never right."""
    return knowing(texts, lambda place: (most, place * 0), most)


def by_turns(texts: Sequence[Sequence[int]], most: int = 5) -> type[EngineProposer]:
    """Return a proposer whose drafts differ in number and worth from place to place."""
    return knowing(texts, lambda place: (place * 7 % (most + 1), place * 3 % (most + 1)), most)
