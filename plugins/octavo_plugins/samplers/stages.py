"""The stock sampler stages, one row at a time: the reference of what op sets run fused.

Knows one row of logits, its parameters and history. Does not know batches, nor how a token is
drawn in the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.interfaces.sampler import SamplerStage
from octavo_kernels.reference.edits import (
    PenaltyEntries,
    add_bias,
    apply_penalties,
    bad_word_bans,
    ban,
    keep_only,
)
from octavo_plugins.samplers.live_tokens import largest_mask, live_tokens, smallest_set

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.interfaces.sampler import SamplingRow
    from octavo.sampling_params import SamplingParams


class AllowedIds(SamplerStage):
    """Only `allowed_token_ids` may be drawn."""

    position = 10
    is_native = True
    parameters = ("allowed_token_ids",)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether there is a list."""
        return bool(params.allowed_token_ids)

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set all other logits to -inf."""
        if row.params.allowed_token_ids:
            keep_only(logits[None], 0, _ids(row.params.allowed_token_ids))


class BadWords(SamplerStage):
    """No sequence of `bad_words` may be completed in the output."""

    position = 20
    is_native = True
    parameters = ("bad_words",)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether there are bad words."""
        return bool(params.bad_words)

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Ban the last token of each word whose other tokens end the output."""
        _ban(logits, bad_word_bans(row.output_ids, row.bad_words_ids))


class MinTokens(SamplerStage):
    """No end of sequence, nor stop token, before `min_tokens` tokens are there."""

    position = 30
    is_native = True
    parameters = ("min_tokens", "stop_token_ids")

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether a minimum is asked for."""
        return params.min_tokens > 0

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Ban every id that would end the output."""
        if len(row.output_ids) < row.params.min_tokens:
            _ban(logits, [*row.eos_token_ids, *(row.params.stop_token_ids or ())])


class LogitBias(SamplerStage):
    """Adds `logit_bias` to the logits of single tokens."""

    position = 40
    is_native = True
    parameters = ("logit_bias",)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether there is a bias."""
        return bool(params.logit_bias)

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Add the biases."""
        bias = row.params.logit_bias or {}
        ids = _ids(bias)
        add_bias(logits[None], np.zeros_like(ids), ids, np.array([*bias.values()], np.float32))


class Penalties(SamplerStage):
    """Repetition (of prompt and output), frequency and presence (of the output) penalties."""

    position = 50
    is_native = True
    parameters = ("repetition_penalty", "frequency_penalty", "presence_penalty")

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether any penalty differs from its neutral value."""
        return bool(
            params.repetition_penalty != 1 or params.frequency_penalty or params.presence_penalty
        )

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Penalise the tokens of the history."""
        params = row.params
        output = _ids(row.output_ids)
        ids = np.unique(np.concatenate((_ids(row.prompt_ids), output)))
        counts = np.zeros(len(ids), dtype=np.int64)
        np.add.at(counts, np.searchsorted(ids, output), 1)
        entries = PenaltyEntries(
            rows=np.zeros_like(ids),
            token_ids=ids,
            output_counts=counts,
            repetition=np.full(len(ids), params.repetition_penalty, dtype=np.float32),
            frequency=np.full(len(ids), params.frequency_penalty, dtype=np.float32),
            presence=np.full(len(ids), params.presence_penalty, dtype=np.float32),
        )
        apply_penalties(logits[None], entries)


class Temperature(SamplerStage):
    """Divides logits by `temperature`; at 0 only the first of the largest is left."""

    position = 100
    is_native = True
    parameters = ("temperature",)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether the temperature is not 1."""
        return params.temperature != 1

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Divide distances from the largest logit, so that no temperature overflows."""
        temperature = row.params.temperature
        if temperature == 0:
            best = int(logits.argmax())
            kept = logits[best].item()
            logits.fill_(-math.inf)
            logits[best] = kept
        elif temperature != 1 and logits.max() > -math.inf:  # of nothing, nothing is left
            logits.sub_(logits.max()).div_(temperature)


class MinP(SamplerStage):
    """Drops tokens whose probability is below `min_p` times the largest."""

    position = 210
    is_native = True
    parameters = ("min_p",)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether it can drop anything."""
        return params.min_p > 0

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        if row.params.min_p > 0:
            shares = torch.exp((logits - logits.max()).double())
            logits.masked_fill_(shares < row.params.min_p, -math.inf)


class TopK(SamplerStage):
    """Keeps the `top_k` largest logits, of equal ones those of lower id."""

    position = 220
    is_native = True
    parameters = ("top_k",)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether a number is asked for."""
        return params.top_k > 0

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        count = row.params.top_k
        tokens = live_tokens(logits)
        if tokens is not None and 0 < count < len(tokens.logits):
            tokens.keep(logits, largest_mask(tokens.logits, count))


class TopP(SamplerStage):
    """Keeps the smallest set of largest logits that holds probability `top_p` of what is left."""

    position = 230
    is_native = True
    parameters = ("top_p",)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether it can drop anything."""
        return params.top_p < 1

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        tokens = live_tokens(logits)
        if row.params.top_p >= 1 or tokens is None:
            return
        distances = tokens.distances()
        tokens.keep(logits, smallest_set(-distances, np.exp(distances), row.params.top_p))


def _ids(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array([*values], dtype=np.int64)


def _ban(logits: Tensor, token_ids: Iterable[int]) -> None:
    ids = _ids(token_ids)
    ban(logits[None], np.zeros_like(ids), ids)
