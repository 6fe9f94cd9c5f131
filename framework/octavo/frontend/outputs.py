"""What a caller gets back: vLLM's output classes, field by field.

Knows names and meanings only. Does not know how they are filled
(`octavo.frontend.output_processor`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "BeamSearchOutput",
    "BeamSearchSequence",
    "CompletionOutput",
    "Logprob",
    "RequestMetrics",
    "RequestOutput",
]


@dataclass(slots=True)
class Logprob:
    """One token's log-probability, its rank (1 is the most probable) and its text."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One choice.

    `text`, `token_ids` and `logprobs` are all so far, or what is new since the last output with
    `RequestOutputKind.DELTA`. `logprobs[i]` maps ids to `Logprob`: the sampled token first, then
    the most probable ones.
    `finish_reason` is None while it runs, then stop, length, repetition, abort or error (`error`
    says why). `stop_reason` is the stop string or stop token id that ended it, None for
    end-of-sequence, "repetition_detected" for that.
    `token_ids` holds the token that ended it; `text` does not, unless
    `include_stop_str_in_output`. `num_tokens` counts all tokens so far, whatever the kind.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    num_tokens: int = 0

    def finished(self) -> bool:
        """Return whether this choice has ended."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """When things happened, in seconds of the monotonic clock; None: not yet."""

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None


@dataclass(slots=True)
class RequestOutput:
    """The state of one prompt and its choices.

    `prompt` is the text, None when token ids were given. `prompt_logprobs` has one entry per
    prompt token, the first None. `num_cached_tokens`: how many prompt tokens a cache already had.
    `pooled` is the vector of a prompt of which one was wanted, as in `EngineOutput`.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    metrics: RequestMetrics | None = None
    num_cached_tokens: int = 0
    pooled: bytes | None = None
    lora_request: object | None = field(default=None, repr=False)


@dataclass(slots=True)
class BeamSearchSequence:
    """One text that a beam search has found.

    `tokens` are those of the prompt and what follows, the end of sequence too. `text` is the text
    of them all, special tokens too; of what ended it only with `include_stop_str_in_output`.
    `logprobs` has an entry per token after the prompt: that token first, then the likeliest ones.
    `finish_reason` and `stop_reason` are as in `CompletionOutput`, with `error` if it is "error".
    """

    tokens: list[int]
    logprobs: list[dict[int, Logprob]]
    cum_logprob: float = 0.0
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    lora_request: object | None = field(default=None, repr=False)


@dataclass(slots=True)
class BeamSearchOutput:
    """The texts that a beam search has found for one prompt, best first: `beam_width` of them."""

    sequences: list[BeamSearchSequence]
