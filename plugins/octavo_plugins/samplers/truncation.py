"""Stages that drop tokens by the shape of the distribution: typical-p, top-n-sigma, min-k, XTC.

Knows one row of logits and its parameters. Does not know batches, history, nor how a token is
drawn in the end.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from octavo.interfaces.sampler import SamplerStage
from octavo_plugins.samplers.live_tokens import (
    largest,
    largest_mask,
    live_tokens,
    smallest_set,
    weigh,
)
from octavo_plugins.samplers.parameters import (
    MinKParams,
    TopNSigmaParams,
    TypicalPParams,
    XtcParams,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.interfaces.sampler import SamplingRow
    from octavo.sampling_params import SamplingParams

XTC_PURPOSE = zlib.crc32(b"xtc")


class TypicalP(SamplerStage):
    """Keeps the tokens whose surprise is nearest to the expected one.

    Locally typical sampling (Meister et al., arXiv:2202.00666): tokens in the order of
    |-log p - H|, H being the entropy in nats, as few as hold the mass `typical_p`. Tokens of
    equal distance are taken by id. The likeliest token may be among those that go.
    """

    position = 225  # between top-k and top-p, as in llama.cpp's chain
    parameters = tuple(TypicalPParams.model_fields)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether it can drop anything."""
        return bool(params.extra_args) and TypicalPParams.read(params).typical_p < 1

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        typical_p = TypicalPParams.read(row.params).typical_p
        tokens = live_tokens(logits)
        if typical_p >= 1 or tokens is None:
            return
        distances = tokens.distances()  # log p, up to a constant
        weights, _, mean = weigh(distances)
        # -log p - H = (log total - distance) - (log total - mean)
        tokens.keep(logits, smallest_set(np.abs(mean - distances), weights, typical_p))


class TopNSigma(SamplerStage):
    """Keeps logits within `top_n_sigma` standard deviations of the largest.

    Top-n-sigma (Tang et al., arXiv:2411.07641), with llama.cpp's deviation: of all logits above
    -inf, divided by their number. It looks at raw logits, before temperature, which would scale
    both sides alike.
    """

    position = 80  # before temperature and other truncation, as in llama.cpp's chain
    parameters = tuple(TopNSigmaParams.model_fields)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether a number is asked for."""
        return bool(params.extra_args) and TopNSigmaParams.read(params).top_n_sigma > 0

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        num_sigmas = TopNSigmaParams.read(row.params).top_n_sigma
        tokens = live_tokens(logits)
        if num_sigmas <= 0 or tokens is None:
            return
        distances = tokens.distances()
        tokens.keep(logits, distances >= -num_sigmas * distances.std())


class MinK(SamplerStage):
    """Cuts where sorted logits fall off the steepest, a fall at rank i counting 1/i.

    Min-k sampling (Ding et al., arXiv:2604.11012). With logits l_1 >= ... >= l_V and the range
    R = l_1 - l_V, the cut is behind the rank i with the largest (l_i - l_i+1) / (R i), but not
    before rank tau / R: flat logits have no cliff, and keep more. `min_k` is tau, 3 in the paper.
    R is that of raw logits, so that temperature does not change what is kept.
    """

    position = 85  # on raw logits: only there is tau what the paper says
    parameters = tuple(MinKParams.model_fields)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether a tau is given."""
        return bool(params.extra_args) and MinKParams.read(params).min_k > 0

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        tau = MinKParams.read(row.params).min_k
        tokens = live_tokens(logits)
        if tau <= 0 or tokens is None:
            return
        values = tokens.logits
        lowest = float(values.min())
        if lowest == tokens.best:  # all are equal: no cliff, and tau / R is infinite
            return
        fallback = min(tau / (tokens.best - lowest), len(values))
        count = max(_cliff(values, lowest), int(fallback))
        if count < len(values):
            tokens.keep(logits, largest_mask(values, count))


def _cliff(values: NDArray[np.float32], lowest: float) -> int:
    """Return the rank behind which values [n] fall the steepest; the first of equal ones.

    Ranks are looked at from the top: behind rank m no fall counts more than (l_m - l_V) / m.
    """
    count = 256
    while True:
        top = largest(values, count).astype(np.float64)
        falls = (top[:-1] - top[1:]) / np.arange(1, len(top))
        best = int(falls.argmax())
        is_seen = len(top) == len(values) or falls[best] >= (top[-1] - lowest) / len(top)
        if is_seen:
            return best + 1
        count *= 8


class Xtc(SamplerStage):
    """Drops, now and then, all but the least likely of the tokens that are likely enough.

    "Exclude top choices" (P. E. Weidmann, oobabooga/text-generation-webui#6335), as llama.cpp
    does it: with `xtc_probability`, of the tokens with p >= `xtc_threshold` only the least
    probable stays, and all below stay too. Of equal ones the last id stays. Nothing is exempt:
    ends and line breaks go as well. The dice are the request's own noise, so that a seed gives
    the same text again, with and without drafts.
    """

    position = 240  # the last of the truncations, as in llama.cpp's chain
    parameters = tuple(XtcParams.model_fields)

    def is_active(self, params: SamplingParams) -> bool:
        """Return whether it may happen. No two tokens can both have p > 0.5."""
        if not params.extra_args:
            return False
        given = XtcParams.read(params)
        return given.xtc_probability > 0 and given.xtc_threshold <= 0.5  # noqa: PLR2004

    def apply(self, logits: Tensor, row: SamplingRow) -> None:
        """Set dropped logits to -inf."""
        if not self.is_active(row.params):
            return
        given = XtcParams.read(row.params)
        if row.uniform(XTC_PURPOSE) >= given.xtc_probability:
            return
        tokens = live_tokens(logits)
        if tokens is None:
            return
        weights = np.exp(tokens.distances())
        is_top = weights >= given.xtc_threshold * weights.sum()
        top = np.flatnonzero(is_top)
        if len(top) > 1:
            is_top[top[len(top) - 1 - int(weights[top][::-1].argmin())]] = False
            tokens.keep(logits, ~is_top)
