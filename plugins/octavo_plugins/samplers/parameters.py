"""What a request may set for the sampler stages, by the names that llama.cpp's clients use.

The server process checks with these models, so that nothing here needs torch. Every default asks
for nothing; the stages' own docstrings say what the values mean. Every number has bounds, far from
what anybody needs, within which no stage comes near infinity (a test holds this).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints

from octavo.plugin.options import RequestParams
from octavo_plugins.samplers.breakers import breaker_ids

if TYPE_CHECKING:
    from octavo.interfaces.tokenizer import Tokenizer

_INT32_MAX = 2**31 - 1
_MAX_TEMPERATURE = 100.0
_MAX_EXPONENT = 100.0
_MAX_RATE = 100.0
#: no vocabulary surprises by so much
_MAX_BITS = 100.0
#: of distances between logits
_MAX_FACTOR = 1e6


class TypicalPParams(RequestParams):
    """For the stage `typical-p`."""

    typical_p: float = Field(1.0, gt=0, le=1, description="mass of typical tokens to keep")


class TopNSigmaParams(RequestParams):
    """For the stage `top-n-sigma`."""

    top_n_sigma: float = Field(
        -1.0,
        ge=-_MAX_FACTOR,
        le=_MAX_FACTOR,
        description="how many standard deviations below the largest logit to keep; <= 0: off",
    )


class MinKParams(RequestParams):
    """For the stage `min-k`."""

    min_k: float = Field(
        0.0,
        ge=0,
        le=_MAX_FACTOR,
        description="the paper's tau, 3 there: more keeps more of flat logits; 0: off",
    )


class XtcParams(RequestParams):
    """For the stage `xtc`."""

    xtc_probability: float = Field(0.0, ge=0, le=1, description="how often to drop; 0: off")
    xtc_threshold: float = Field(
        0.1, ge=0, le=1, description="tokens at least so likely are dropped, all but the least"
    )


def _listed(value: Any) -> Any:
    """Read the form that text-generation-webui sends: JSON texts with commas between them.

    No text at all is no breakers. Any other that is no such list is refused: a breaker by itself
    must not be mistaken for one.
    """
    if not isinstance(value, str):
        return value
    if not value:
        return []
    text = value.strip()
    try:
        listed = json.loads(text if text.startswith("[") else f"[{text}]")
    except (ValueError, RecursionError):
        listed = None
    if not text or not isinstance(listed, list) or not all(isinstance(x, str) for x in listed):
        raise ValueError('must be a list of texts, or such a list as a text: ["\\n", ":"]')
    return listed


Breaker = Annotated[str, StringConstraints(min_length=1, max_length=40)]


class DryParams(RequestParams):
    """For the stage `dry`."""

    dry_multiplier: float = Field(
        0.0, ge=0, le=_MAX_FACTOR, description="size of the penalty; 0: off"
    )
    dry_base: float = Field(
        1.75, ge=1, le=_MAX_FACTOR, description="the penalty grows by it with each token"
    )
    dry_allowed_length: int = Field(
        2, ge=0, le=_INT32_MAX, description="repetitions of so many tokens are penalised once"
    )
    dry_penalty_last_n: int = Field(
        -1, ge=-1, le=_INT32_MAX, description="how far back to look; -1: to the start, 0: off"
    )
    dry_sequence_breakers: Annotated[list[Breaker], BeforeValidator(_listed)] = Field(
        ["\n", ":", '"', "*"], max_length=64, description="texts that end a repetition"
    )

    @property
    def is_on(self) -> bool:
        """Return whether anything is penalised."""
        return self.dry_multiplier > 0 and self.dry_penalty_last_n != 0

    def to_extra_args(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Add `dry_breakers`: the breakers in the ids of this tokenizer."""
        args = super().to_extra_args(tokenizer)
        if self.is_on:
            args["dry_breakers"] = breaker_ids(tokenizer, tuple(self.dry_sequence_breakers))
        return args


class DynamicTemperatureParams(RequestParams):
    """For the stage `dynatemp`."""

    dynatemp_range: float = Field(
        0.0,
        ge=0,
        le=_MAX_TEMPERATURE,
        description="the temperature moves so far to both sides; 0: off",
    )
    dynatemp_exponent: float = Field(
        1.0, ge=0, le=_MAX_EXPONENT, description="how the temperature follows the entropy"
    )


class MirostatParams(RequestParams):
    """For the stage `mirostat`."""

    mirostat: int = Field(0, ge=0, le=2, description="the version of the method; 0: off")
    mirostat_tau: float = Field(
        5.0, ge=0, le=_MAX_BITS, description="the surprise to aim at, in bits"
    )
    mirostat_eta: float = Field(
        0.1, ge=0, le=_MAX_RATE, description="how fast to correct towards it"
    )
