"""What the front end and the engine say to each other. Plain data, fit for msgspec."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.errors import RequestError, RequestFailedError
from octavo.interfaces.adapter import AdapterUse  # noqa: TC001 - msgspec reads annotations
from octavo.interfaces.grammar import GrammarSpec, ReasoningSpec  # noqa: TC001 - as above
from octavo.sampling_params import SamplingParams  # noqa: TC001 - as above


@dataclass(slots=True)
class TokenLogprobs:
    """Log-probability and rank (1 = best) of a token, and of others: by default of the likeliest.

    These are the best ones in order, unless `top_ranks` says which they are.
    """

    token_id: int
    logprob: float
    rank: int
    top_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    top_ranks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class EngineRequest:
    """One sequence to generate, validated: ids within the vocabulary, lengths within the context.

    `seed` is always set; `choice` tells the sequences of one call with n > 1 apart.
    `eos_token_ids` end the sequence (empty with ignore_eos) and are barred before min_tokens.
    So do `stop_token_ids`, those of the parameters: a set, as there may be very many.

    With `pooling`, "last" or "mean", nothing is generated (`max_tokens` is 0): wanted is the final
    hidden state of the prompt's last token, or the mean of those of all its tokens.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    max_tokens: int
    seed: int
    arrival_s: float
    choice: int = 0
    priority: int = 0
    eos_token_ids: tuple[int, ...] = ()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    cache_salt: str | None = None
    grammar: GrammarSpec | None = None
    reasoning: ReasoningSpec | None = None
    adapters: tuple[AdapterUse, ...] = ()
    pooling: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class EngineOutput(msgspec.Struct, omit_defaults=True):
    """News of one request after a step. A struct, as there is one for each token.

    `prompt_logprobs` comes once, with the first output: one entry per prompt token, the first
    None. `pooled` comes with the end: little-endian float32 [hidden]. `finish_reason`: stop,
    length, abort or error; `stop_reason` is the stop token id that ended it, None for
    end-of-sequence. `error` says what went wrong; `is_refused` tells a fault of the request from
    one of the engine, and `param` the field at fault.
    """

    request_id: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0
    finish_reason: str | None = None
    stop_reason: int | None = None
    error: str | None = None
    is_refused: bool = False
    param: str | None = None
    pooled: bytes | None = None

    def failure(self) -> RequestError | RequestFailedError:
        """Return the error of an output that ended with one, to be raised."""
        headline, *facts = (self.error or "the engine gave up on this request").split("\n")
        facts = [fact.strip() for fact in facts]
        if self.is_refused:
            return RequestError(headline, *facts, param=self.param)
        return RequestFailedError(headline, *facts)


@dataclass(slots=True)
class EngineStats:
    """A snapshot of the engine. Counters only grow."""

    num_running: int = 0
    num_waiting: int = 0
    kv_usage: float = 0.0
    num_blocks: int = 0
    step: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    finished: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the front end must know of a started engine to validate requests, or to rate it.

    `max_logprobs` is at most the vocabulary. The last two are as in
    `octavo.interfaces.executor.ExecutorFacts`.
    """

    vocab_size: int
    max_model_len: int
    capacity_tokens: int
    max_logprobs: int = 20
    max_num_queued_reqs: int = 2048
    weight_bytes: int = 0
    num_multiplied_weights: int = 0
