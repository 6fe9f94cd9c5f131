"""Stages that follow the entropy: dynamic temperature, and mirostat, which remembers.

Knows one row of logits, its parameters and mirostat's state. Does not know batches, nor how a
token is drawn in the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.interfaces.sampler import SamplerStage
from octavo_plugins.samplers.live_tokens import largest, largest_mask, live_tokens, weigh
from octavo_plugins.samplers.parameters import DynamicTemperatureParams, MirostatParams

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.interfaces.sampler import SamplingRow
    from octavo.sampling_params import SamplingParams
    from octavo_plugins.samplers.live_tokens import LiveTokens

_MIROSTAT_1 = 1
#: a temperature that is so much lower than the request's leaves only the best token
_SHARPEST = 1e-30
#: from how many of the likeliest tokens mirostat 1 estimates Zipf's exponent
_NUM_FOR_ZIPF = 100


class DynamicTemperature(SamplerStage):
    """Makes the temperature follow the entropy of what is left to draw from.

    With T the request's `temperature` and r `dynatemp_range`, it is
    T - r + 2 r (H / H_max) ** `dynatemp_exponent`, not below 0; H is the entropy at temperature 1
    of the tokens that truncation left, H_max that of as many equal ones (llama.cpp's `temp_ext`,
    PR ggml-org/llama.cpp#4972, the last of its chain). Where T is 0, it stays 0.
    """

    position = 250  # behind truncation: H_max depends on how many tokens are left
    parameters = tuple(DynamicTemperatureParams.model_fields)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether there is a range, and a temperature to move."""
        if not params.extra_args or params.temperature == 0:
            return False
        return DynamicTemperatureParams.read(params).dynatemp_range > 0

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Take the request's temperature back, and divide by the dynamic one."""
        if not self.is_active(row.params):
            return
        tokens = live_tokens(logits)
        if tokens is None or len(tokens.logits) == 1:
            return
        temperature = row.params.temperature
        distances = tokens.distances() * temperature
        given = DynamicTemperatureParams.read(row.params)
        _, total, mean = weigh(distances)
        share = max(0.0, math.log(total) - mean) / math.log(len(distances))
        low = max(0.0, temperature - given.dynatemp_range)
        high = temperature + given.dynatemp_range
        dynamic = low + (high - low) * share**given.dynatemp_exponent
        if dynamic <= temperature * _SHARPEST:
            tokens.keep(logits, largest_mask(tokens.logits, 1))
        else:
            logits.sub_(tokens.best).mul_(temperature / dynamic)


class Mirostat(SamplerStage):
    """Keeps the surprise of the text near `mirostat_tau` bits a token.

    Mirostat (Basu et al., arXiv:2007.14966), as in llama.cpp. The state is mu, at first 2 tau.
    Version 2 drops tokens more surprising than mu bits; version 1 keeps the k likeliest, with k
    from mu and Zipf's exponent of the likeliest hundred. At least one token stays. After a token
    of surprise s in what was left, mu falls by `mirostat_eta` (s - tau).

    llama.cpp has no other truncation beside mirostat; here it takes what the request's own top-k,
    top-p and the like leave.
    """

    position = 260  # the last: what it measures is what tokens are drawn from
    parameters = tuple(MirostatParams.model_fields)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether a version is asked for."""
        return bool(params.extra_args) and MirostatParams.read(params).mirostat > 0

    def new_state(self, row: SamplingRow) -> Any:
        """Return mu before the first token; None when mirostat is off."""
        given = MirostatParams.read(row.params)
        return 2.0 * given.mirostat_tau if given.mirostat else None

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        given = MirostatParams.read(row.params)
        tokens = live_tokens(logits)
        if given.mirostat == 0 or tokens is None:
            return
        if given.mirostat == _MIROSTAT_1:
            count = _zipf_count(tokens, row.state, len(logits))
            if count < len(tokens.logits):
                tokens.keep(logits, largest_mask(tokens.logits, count))
            return
        distances = tokens.distances()
        floor = math.log(float(np.exp(distances).sum())) - row.state * math.log(2)
        is_kept = distances >= floor
        tokens.keep(logits, is_kept if is_kept.any() else largest_mask(tokens.logits, 1))

    def advance(self, row: SamplingRow, logits: Tensor, token_id: int) -> Any:
        """Return mu after a token."""
        tokens = live_tokens(logits)
        if row.state is None or tokens is None:
            return row.state
        given = MirostatParams.read(row.params)
        total = float(np.exp(tokens.distances()).sum())
        surprise = (math.log(total) - (float(logits[token_id]) - tokens.best)) / math.log(2)
        if math.isinf(surprise):  # a token that was forced from outside says nothing of mu
            return row.state
        return row.state - given.mirostat_eta * (surprise - given.mirostat_tau)


def _zipf_count(tokens: LiveTokens, mu: float, vocab_size: int) -> int:
    """Return mirostat 1's k, from 1 up to the number of tokens.

    With s the exponent, e = s - 1 and N the vocabulary, k = (e 2^mu / (1 - N^-e)) ^ (1/s).
    """
    top = largest(tokens.logits, _NUM_FOR_ZIPF).astype(np.float64)
    if len(top) == 1:
        return 1
    ranks = np.arange(1, len(top))
    steps = np.log((ranks + 1) / ranks)
    falls = top[:-1] - top[1:]  # log(p_i / p_i+1)
    exponent = float((steps * falls).sum() / (steps * steps).sum())
    excess = exponent - 1
    if exponent <= 0:  # equal tokens: every k is as good, so that none is dropped
        return len(tokens.logits)
    # e / (1 - N^-e) is positive on both sides of e = 0, and 1 / log N there
    scale = 1 / math.log(vocab_size)
    if abs(excess) > 1e-9:  # noqa: PLR2004 - below, the quotient has no digits left
        scale = excess / -math.expm1(-excess * math.log(vocab_size))
    log_count = (math.log(scale) + mu * math.log(2)) / exponent
    if log_count >= math.log(len(tokens.logits)):
        return len(tokens.logits)
    return max(1, int(math.exp(log_count)))
