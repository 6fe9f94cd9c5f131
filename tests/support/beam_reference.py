"""Beam search as vLLM does it, written out: no early end, all candidates by their whole texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


class Found(NamedTuple):
    """A text that was found: its ids after the prompt, its logprob, and whether it has ended."""

    token_ids: list[int]
    cum_logprob: float
    is_ended: bool


def reference_search(
    logprobs_of: Callable[[Sequence[int]], Sequence[float]],
    prompt: Sequence[int],
    *,
    width: int,
    max_tokens: int,
    length_penalty: float = 1.0,
    ends: Collection[int] = (),
    eos: Collection[int] = (),
) -> list[Found]:
    """Return the `width` best texts. `logprobs_of` gives those of every token after some ids.

    `ends` end a text; `eos` are not counted at its end.
    """

    def score(one: Found) -> float:
        num_tokens = len(prompt) + len(one.token_ids) - (one.token_ids[-1] in eos)
        return one.cum_logprob / num_tokens**length_penalty

    alive, ended = [Found([], 0.0, is_ended=False)], []
    for _ in range(max_tokens):
        longer = []
        for ids, cum_logprob, _ in alive:
            logprobs = logprobs_of([*prompt, *ids])
            best = sorted(range(len(logprobs)), key=lambda i, row=logprobs: -row[i])[: 2 * width]
            longer += [Found([*ids, i], cum_logprob + logprobs[i], i in ends) for i in best]
        ended += [one for one in longer if one.is_ended]
        alive = sorted(
            (one for one in longer if not one.is_ended), key=lambda one: -one.cum_logprob
        )[:width]
    return sorted(ended + alive, key=score, reverse=True)[:width]
