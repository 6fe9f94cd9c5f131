"""DRY: penalises tokens that would go on with a repetition, more the longer it is already.

Knows one row of logits, its history and the stage's state. Does not know texts: the breakers of
sequences come as token ids (`octavo_plugins.samplers.breakers`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.interfaces.sampler import SamplerStage
from octavo_plugins.samplers.parameters import DryParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.interfaces.sampler import SamplingRow
    from octavo.sampling_params import SamplingParams

#: log of the largest float32: a penalty grows no further
_MAX_LOG_PENALTY = 88.7228391


class Breakers:
    """Which tokens end a sequence. Nothing in it changes."""

    def __init__(self, pairs: Iterable[tuple[Iterable[int], Sequence[int]]]) -> None:
        """`pairs`: heads and a tail; a head is a breaker when the tokens of the tail follow."""
        self.single: set[int] = set()
        self._tails: dict[int, list[tuple[tuple[int, ...], frozenset[int]]]] = defaultdict(list)
        for heads, tail in pairs:
            if tail:
                self._tails[tail[-1]].append((tuple(tail), frozenset(heads)))
            else:
                self.single.update(heads)

    def is_end(self, ids: NDArray[np.int64]) -> bool:
        """Return whether the last of these tokens is, or completes, a breaker."""
        last = int(ids[-1])
        if last in self.single:
            return True
        for tail, heads in self._tails.get(last, ()):
            place = len(ids) - len(tail) - 1
            if place >= 0 and int(ids[place]) in heads and tuple(ids[place + 1 :]) == tail:
                return True
        return False


@dataclass(frozen=True, slots=True)
class DryState:
    """A request's history, and where its end was said before.

    `repeats[i]` is how many of the tokens up to number i are the same as the last ones of the
    history, back to the last breaker at most. No array is ever written to.
    """

    breakers: Breakers
    ids: NDArray[np.int64]  # [n]
    repeats: NDArray[np.int64]  # [n - 1]

    def after(self, token_id: int) -> DryState:
        """Return the state with one more token."""
        ids = np.append(self.ids, token_id)
        repeats = np.zeros(len(self.ids), dtype=np.int64)
        if not self.breakers.is_end(ids):
            repeats[1:] = self.repeats
            repeats += 1
            repeats *= self.ids == token_id
        return replace(self, ids=ids, repeats=repeats)


def first_state(breakers: Breakers, history: Sequence[int], cap: int) -> DryState:
    """Return the state of a history. Repeats longer than `cap` may count as `cap`."""
    ids = np.asarray(history, dtype=np.int64)
    repeats = np.zeros(max(0, len(ids) - 1), dtype=np.int64)
    ends = np.arange(len(repeats))  # of the places where the last `length` tokens stand
    for length in range(min(cap, len(ids))):
        place = len(ids) - 1 - length
        if not len(ends) or breakers.is_end(ids[: place + 1]):
            break
        ends = ends[ends >= length]
        ends = ends[ids[ends - length] == ids[place]]
        repeats[ends] += 1
    return DryState(breakers, ids, repeats)


class Dry(SamplerStage):
    """Takes `dry_multiplier` * `dry_base` ** (n - `dry_allowed_length`) off the next token.

    "Don't repeat yourself" (P. E. Weidmann, oobabooga/text-generation-webui#5677), as llama.cpp
    does it. n is the length of the longest sequence that ends the history and that this token
    followed before; nothing happens below `dry_allowed_length`. The history is the prompt with
    the output, of which the last `dry_penalty_last_n` tokens count (-1: all). Sequences do not
    reach across breakers, and tokens that are breakers are not penalised.

    The state holds the lengths for the whole history: one comparison of it with each new token
    brings them up to date.
    """

    position = 60  # behind the other penalties, as in llama.cpp's chain
    parameters = tuple(DryParams.model_fields)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether anything is penalised."""
        return bool(params.extra_args) and DryParams.read(params).is_on

    def new_state(self, row: SamplingRow) -> Any:
        """Return the state of the prompt; None when DRY is off."""
        given = DryParams.read(row.params)
        if not given.is_on:
            return None
        breakers = Breakers((row.params.extra_args or {}).get("dry_breakers", ()))
        history = [*row.prompt_ids, *row.output_ids]
        return first_state(breakers, history, given.dry_allowed_length + _max_exponent(given))

    def advance(self, row: SamplingRow, logits: Tensor, token_id: int) -> Any:
        """Return the state after a token."""
        del logits
        return None if row.state is None else row.state.after(token_id)

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Subtract the penalties."""
        given = DryParams.read(row.params)
        state: DryState | None = row.state
        if state is None or not given.is_on:
            return
        first = 0 if given.dry_penalty_last_n < 0 else len(state.ids) - given.dry_penalty_last_n
        repeats = state.repeats
        if first > 0:  # nothing before the window counts, nor what reaches out of it
            repeats = np.minimum(repeats[first:], np.arange(1, len(repeats) - first + 1))
        ends = np.flatnonzero(repeats >= given.dry_allowed_length)
        followers = state.ids[ends + max(first, 0) + 1]
        ids, places = np.unique(followers, return_inverse=True)
        lengths = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(lengths, places, repeats[ends])
        is_penalised = np.array([i not in state.breakers.single for i in ids.tolist()], dtype=bool)
        ids, lengths = ids[is_penalised], lengths[is_penalised]
        if len(ids):
            exponents = np.minimum(lengths - given.dry_allowed_length, _max_exponent(given))
            penalties = given.dry_multiplier * given.dry_base ** exponents.astype(np.float64)
            penalties = np.minimum(penalties, math.exp(_MAX_LOG_PENALTY - 1))
            where = torch.from_numpy(ids).to(logits.device)
            logits[where] -= torch.from_numpy(penalties).to(logits)


def _max_exponent(given: DryParams) -> int:
    """Return from which exponent on the penalty grows no further."""
    log_base = math.log(given.dry_base)
    return int(min(_MAX_LOG_PENALTY / log_base, 2**31)) if log_base > 0 else 0
