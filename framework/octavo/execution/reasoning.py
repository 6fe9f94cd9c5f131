"""The reasoning before a text: how long it may be, and where the text's form begins.

While a text is inside of its reasoning any token may come, as it might without a form; only an
end of the text may not, where there is a form still to come. The token after the end mark is the
first of the form. When the budget is spent, the tokens of the end mark are all that may come.

A reasoning that is not open begins with its start mark: before a form at the very beginning of
the output, where either the mark or the form may come; without a form anywhere.

Marks are sequences of token ids: a mark that is written in other tokens is none.

Knows token ids and masks. Does not know grammars from inside, logits, or the texts of marks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from octavo.errors import GrammarError
from octavo.execution.grammars import GrammarRow, allows, bits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from octavo.engine.plan import RowSpec
    from octavo.interfaces.grammar import ReasoningSpec

    Mask: TypeAlias = NDArray[np.uint32] | None
    #: what follows one row, and says which tokens may come
    Guide: TypeAlias = "GrammarRow | ReasoningRow"


class Phase(IntEnum):
    """Where a text is, seen from its reasoning."""

    BEFORE = 0
    INSIDE = 1
    AFTER = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text is: behind `num_matched` tokens of the mark that it may come to next.

    `num_inside` counts the tokens since the reasoning began, those of a begun mark among them.
    """

    phase: Phase
    num_matched: int = 0
    num_inside: int = 0


class Marks:
    """Follows a text by its marks. `is_first`: the start mark can only begin the output."""

    def __init__(self, spec: ReasoningSpec, *, is_first: bool) -> None:
        self._spec = spec
        self._is_first = is_first
        self._start_retreats = _retreats(spec.start_ids)
        self._end_retreats = _retreats(spec.end_ids)

    def start(self) -> Place:
        """Return the place before the first token of the output."""
        if self._spec.is_open:
            return Place(Phase.INSIDE)
        return Place(Phase.BEFORE if self._spec.start_ids else Phase.AFTER)

    def follow(self, place: Place, token_id: int) -> Place:
        """Return the place behind one more token."""
        spec = self._spec
        match place.phase:
            case Phase.BEFORE:
                num = _advanced(spec.start_ids, self._start_retreats, place.num_matched, token_id)
                if num == len(spec.start_ids):
                    return Place(Phase.INSIDE)
                if self._is_first and num != place.num_matched + 1:
                    return Place(Phase.AFTER)
                return Place(Phase.BEFORE, num)
            case Phase.INSIDE:
                num = _advanced(spec.end_ids, self._end_retreats, place.num_matched, token_id)
                if num == len(spec.end_ids):
                    return Place(Phase.AFTER)
                return Place(Phase.INSIDE, num, place.num_inside + 1)
        return place

    def forced(self, place: Place) -> tuple[int, ...]:
        """Return what must come next because the budget is spent: the rest of the end mark."""
        spec = self._spec
        if place.phase is not Phase.INSIDE or spec.budget is None or place.num_inside < spec.budget:
            return ()
        return spec.end_ids[place.num_matched :]

    def next_of_start(self, place: Place) -> int:
        """Return the token by which a start mark would go on."""
        return self._spec.start_ids[place.num_matched]


class ReasoningRow:
    """Where one row is in its reasoning, and in its grammar behind that. As `GrammarRow`.

    A mask of None allows any token: a row without a grammar is masked only where its end mark is
    forced.
    """

    def __init__(self, spec: RowSpec, grammar: GrammarRow | None, vocab_size: int) -> None:
        if spec.reasoning is None:
            raise AssertionError("a row without reasoning has no place in it")
        self._grammar = grammar
        self._marks = Marks(spec.reasoning, is_first=grammar is not None)
        self._place = self._marks.start()
        self._vocab_size = vocab_size
        self._min_tokens = spec.params.min_tokens
        eos = frozenset(spec.eos_token_ids)
        self._inner_bits = _all_bits(vocab_size) & ~bits_of(eos, vocab_size)
        stops = frozenset(spec.params.stop_token_ids or ())
        self._early_bits = self._inner_bits & ~bits_of(stops, vocab_size)
        self._undecided: list[int] = []  # output that may be a start mark or the form
        self._num_tokens = 0
        self._num_before = 0  # tokens of the output before the form

    def masks(self, drafts: Sequence[int]) -> list[Mask]:
        """Return what may come next, and behind each of the drafts; there may be fewer.

        The state stays where it is. Raises GrammarError for a text that cannot be followed.
        """
        if self._is_over:
            return self._form(drafts, self._num_before)
        place = self._place
        direct: list[Mask] = []  # as if the output began with its form
        if place.phase is Phase.BEFORE:
            known = self._undecided
            direct = self._form([*known, *drafts], 0)[len(known) :]
        found: list[Mask] = []
        is_reasoned = False
        for offset in range(len(drafts) + 1):
            if place.phase is Phase.AFTER:
                rest = self._form_behind(drafts, offset) if is_reasoned else direct[offset:]
                return found + rest
            is_reasoned = place.phase is Phase.INSIDE
            mask = (
                self._inside(place, offset) if is_reasoned else self._before(place, direct, offset)
            )
            found.append(mask)
            if offset == len(drafts) or (mask is not None and not allows(mask, drafts[offset])):
                break
            place = self._marks.follow(place, drafts[offset])
        return found

    def commit(self, token_ids: Sequence[int]) -> None:
        """Follow tokens that are part of the output now. What goes wrong is said by `masks`."""
        for token_id in token_ids:
            phase = self._place.phase
            self._place = self._marks.follow(self._place, token_id)
            self._num_tokens += 1
            if self._grammar is None:
                continue
            if phase is Phase.AFTER:
                self._grammar.commit((token_id,))
            elif phase is Phase.INSIDE:
                self._num_before = self._num_tokens
            else:
                self._undecided.append(token_id)
                if self._place.phase is Phase.AFTER:
                    self._grammar.commit(self._undecided)

    def forced(self, limit: int) -> list[int]:
        """Return up to `limit` tokens that are bound to come, to be offered as drafts."""
        if self._is_over:
            return [] if self._grammar is None else self._grammar.forced(limit)
        return list(self._marks.forced(self._place))[: max(0, limit)]

    @property
    def _is_over(self) -> bool:
        """Return whether there is no reasoning any more."""
        return self._place.phase is Phase.AFTER

    def _before(self, place: Place, direct: list[Mask], offset: int) -> Mask:
        """Return what may begin the form, or go on with the start mark."""
        if self._grammar is None:
            return None
        mask = direct[offset] if offset < len(direct) else None  # None: no form begins like this
        mark = bits_of(frozenset((self._marks.next_of_start(place),)), self._vocab_size)
        return mark if mask is None else mask | mark

    def _inside(self, place: Place, offset: int) -> Mask:
        """Return what may go on with the reasoning, or end it."""
        forced = self._marks.forced(place)
        if forced:
            return bits_of(frozenset(forced[:1]), self._vocab_size)
        if self._grammar is None:
            return None
        is_early = self._num_tokens + offset < self._min_tokens
        return self._early_bits if is_early else self._inner_bits

    def _form(self, drafts: Sequence[int], num_before: int) -> list[Mask]:
        if self._grammar is None:
            return [None] * (len(drafts) + 1)
        return [*self._grammar.masks(drafts, num_before)]

    def _form_behind(self, drafts: Sequence[int], offset: int) -> list[Mask]:
        """Return the masks of a form that begins behind so many drafts."""
        try:
            return self._form(drafts[offset:], self._num_tokens + offset)
        except GrammarError:
            # it concerns the draft alone: the row may go on reasoning
            return [np.zeros_like(self._inner_bits)]


def _all_bits(vocab_size: int) -> NDArray[np.uint32]:
    """Return a mask that allows every token of the vocabulary."""
    bits = np.full(-(-vocab_size // 32), 0xFFFFFFFF, dtype=np.uint32)
    if vocab_size % 32:
        bits[-1] = (1 << vocab_size % 32) - 1
    return bits


def _retreats(mark: Sequence[int]) -> list[int]:
    """Return, for each beginning of a mark, the length of the next shorter one it ends with.

    The failure function of Knuth, Morris and Pratt (1977).
    """
    retreats = [0] * len(mark)
    num = 0
    for index in range(1, len(mark)):
        while num and mark[index] != mark[num]:
            num = retreats[num - 1]
        num += mark[index] == mark[num]
        retreats[index] = num
    return retreats


def _advanced(mark: Sequence[int], retreats: Sequence[int], num: int, token_id: int) -> int:
    """Return how much of a mark a text ends with, behind `num` tokens of it and one more token."""
    while num and mark[num] != token_id:
        num = retreats[num - 1]
    return num + (mark[num] == token_id)
