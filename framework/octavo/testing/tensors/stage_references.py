"""What the fields of `SamplingParams` do to logits, in float64, by definition.

Those that cut leave tokens, those that change numbers leave numbers.

Knows logits and numbers. Does not know stages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from octavo.testing.tensors.method_references import largest, smallest_set, support_of_method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.sampler import SamplingRow

_CLOSE = 1e-5


def expected_support(
    names: Sequence[str], row: SamplingRow, logits: Sequence[float]
) -> tuple[set[int], set[int]] | None:
    """Return the tokens that must be left, and those that may be; None where nothing is known.

    They differ where rounding decides, or ties: equal logits are equally good.
    """
    live = [i for i, x in enumerate(logits) if x > -math.inf]
    params = row.params
    if not live:
        return None
    if "bad_words" in names or "min_tokens" in names:
        left = set(live) - _banned(names, row)
        return left, left
    if tuple(names) == ("temperature",) and params.temperature == 0:
        left = {max(live, key=lambda i: (logits[i], -i))}
        return left, left
    if "allowed_token_ids" in names and params.allowed_token_ids:
        left = set(live) & set(params.allowed_token_ids)
        return left, left
    if "top_k" in names and params.top_k > 0:
        return largest({i: logits[i] for i in live}, params.top_k, params.top_k)
    if "min_p" in names and params.min_p > 0:
        return _min_p(live, logits, params.min_p)
    if "top_p" in names and params.top_p < 1:
        weights = _weights(live, logits)
        return smallest_set(weights, {i: -one for i, one in weights.items()}, params.top_p)
    return support_of_method(names, params.extra_args or {}, {i: logits[i] for i in live})


def expected_number(names: Sequence[str], row: SamplingRow, logits: Sequence[float]) -> int | None:
    """Return how many tokens must be left, whichever of equal ones; None where it is not known."""
    num_live = sum(x > -math.inf for x in logits)
    is_known = "top_k" in names and row.params.top_k > 0
    return min(num_live, row.params.top_k) if is_known else None


def asks(names: Sequence[str], row: SamplingRow, logits: Sequence[float]) -> bool:
    """Return whether it is known that these parameters change these logits."""
    live = {i for i, x in enumerate(logits) if x > -math.inf}
    support = expected_support(names, row, logits)
    numbers = expected_logits(names, row, logits)
    return (support is not None and not live <= support[1]) or (
        numbers is not None and numbers != [*logits]
    )


def _banned(names: Sequence[str], row: SamplingRow) -> set[int]:
    if "bad_words" in names:
        output = list(row.output_ids)
        return {
            word[-1]
            for word in row.bad_words_ids
            if len(output) >= len(word) - 1
            and output[len(output) - len(word) + 1 :] == [*word[:-1]]
        }
    if len(row.output_ids) < row.params.min_tokens:
        return {*row.eos_token_ids, *(row.params.stop_token_ids or ())}
    return set()


def expected_logits(
    names: Sequence[str], row: SamplingRow, logits: Sequence[float]
) -> list[float] | None:
    """Return the logits that must come out, up to a sum that all share; None if not known."""
    params = row.params
    if tuple(names) == ("logit_bias",):
        bias = params.logit_bias or {}
        return [x + bias.get(i, 0.0) for i, x in enumerate(logits)]
    if tuple(names) == ("temperature",):
        return [x / params.temperature for x in logits] if params.temperature else None
    if set(names) == {"repetition_penalty", "frequency_penalty", "presence_penalty"}:
        return [_penalised(i, x, row) for i, x in enumerate(logits)]
    return None


def _penalised(token_id: int, x: float, row: SamplingRow) -> float:
    params, count = row.params, [*row.output_ids].count(token_id)
    if count or token_id in row.prompt_ids:
        x = x / params.repetition_penalty if x > 0 else x * params.repetition_penalty
    return x - params.frequency_penalty * count - params.presence_penalty * (count > 0)


def _weights(live: list[int], logits: Sequence[float]) -> dict[int, float]:
    best = max(logits[i] for i in live)
    return {i: math.exp(logits[i] - best) for i in live}


def _min_p(live: list[int], logits: Sequence[float], p: float) -> tuple[set[int], set[int]]:
    weights = _weights(live, logits)
    sure = {i for i in live if weights[i] > p * (1 + _CLOSE) or weights[i] == 1}
    return sure, {i for i in live if weights[i] >= p * (1 - _CLOSE)}
