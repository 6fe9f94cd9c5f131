"""Checks of a request that need the engine's limits: vocabulary, context, capacity, logprobs.

Knows limits and texts of errors. Does not know tokenizers. What can be checked without the
engine is checked by `octavo.sampling_params`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from octavo.engine.messages import EngineInfo
    from octavo.sampling_params import SamplingParams


def check_params(params: SamplingParams, info: EngineInfo) -> None:
    """Raise RequestError for ids outside the vocabulary, and for more logprobs than allowed."""
    _check_ids("stop_token_ids", params.stop_token_ids or (), info.vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids or (), info.vocab_size)
    _check_ids("logprob_token_ids", params.logprob_token_ids or (), info.vocab_size)
    _check_ids("logit_bias", params.logit_bias or (), info.vocab_size)
    for name in ("logprobs", "prompt_logprobs"):
        _check_num_logprobs(name, getattr(params, name), info)


def check_priority(priority: object) -> None:
    """Raise RequestError for a priority that is no integer, or that no message could hold."""
    is_good = isinstance(priority, int) and -(2**63) <= priority < 2**63
    if not is_good or isinstance(priority, bool):
        raise RequestError("priority must be a 64-bit integer", param="priority")


def check_choice(
    params: SamplingParams,
    eos_token_ids: Iterable[int],
    bad_words_ids: Iterable[tuple[int, ...]],
    info: EngineInfo,
) -> None:
    """Raise RequestError when parameters leave no token that could ever come first."""
    banned = {ids[0] for ids in bad_words_ids if len(ids) == 1}
    if params.min_tokens > 0:
        banned.update(eos_token_ids, params.stop_token_ids or ())
    allowed = params.allowed_token_ids
    is_possible = (
        len(banned) < info.vocab_size if allowed is None else not banned.issuperset(allowed)
    )
    if not is_possible:
        raise RequestError(
            "no token may be drawn: bad_words and min_tokens forbid all that are allowed",
            "min_tokens forbids stop_token_ids and the model's own ends",
            param="min_tokens" if params.min_tokens > 0 else "bad_words",
        )


def check_prompt_ids(token_ids: Sequence[int], info: EngineInfo) -> None:
    """Raise RequestError for a prompt without tokens, or with ids outside the vocabulary."""
    if not token_ids:
        raise RequestError(
            "the prompt is empty: it has no tokens, so there is nothing to continue",
            "give at least one character or token id",
            param="prompt",
        )
    _check_ids("prompt", token_ids, info.vocab_size)


def check_context(num_prompt_tokens: int, max_tokens: int | None, max_model_len: int) -> None:
    """Raise RequestError unless prompt and output fit the context.

    The words "maximum context length is N tokens" are what client libraries look for.
    """
    num_output_tokens = 1 if max_tokens is None else max_tokens
    num_tokens = num_prompt_tokens + num_output_tokens
    if num_tokens <= max_model_len:
        return
    is_prompt_too_long = max_tokens is None or num_prompt_tokens >= max_model_len
    at_least = "at least " if max_tokens is None else ""
    advice = "shorten the prompt"
    if not is_prompt_too_long:
        advice += f", or ask for max_tokens of at most {max_model_len - num_prompt_tokens}"
    raise RequestError(
        f"This model's maximum context length is {max_model_len} tokens. "
        f"However, you requested {at_least}{num_tokens} tokens ({num_prompt_tokens} in the "
        f"prompt, {at_least}{num_output_tokens} for the completion).",
        advice,
        param="prompt" if is_prompt_too_long else "max_tokens",
    )


def check_can_generate(*, is_possible: bool) -> None:
    """Raise RequestError for a text of a model that was saved without its head."""
    if not is_possible:
        raise RequestError(
            "this model generates no text: its files have no head for it",
            "it makes vectors: use /v1/embeddings, or LLM.embed",
            param="model",
        )


def check_pooled(num_prompt_tokens: int, info: EngineInfo) -> int:
    """Raise RequestError for a prompt too long to be made a vector of; 0 tokens are generated."""
    if num_prompt_tokens > info.max_model_len:
        raise RequestError(
            f"This model's maximum context length is {info.max_model_len} tokens. "
            f"However, your input has {num_prompt_tokens} tokens.",
            "shorten it, or have it cut by truncate_prompt_tokens",
            param="prompt",
        )
    check_capacity(num_prompt_tokens, 0, info.capacity_tokens)
    return 0


def check_capacity(num_prompt_tokens: int, max_tokens: int | None, capacity_tokens: int) -> None:
    """Raise RequestError for a request that the KV cache can never hold, however idle it is."""
    num_tokens = num_prompt_tokens + (1 if max_tokens is None else max_tokens)
    if num_tokens > capacity_tokens:
        raise RequestError(
            f"this request needs KV cache for {num_tokens} tokens, "
            f"but only {capacity_tokens} tokens are available",
            "shorten the prompt, lower max_tokens, or start the engine with more cache blocks",
            param="prompt" if num_prompt_tokens >= capacity_tokens else "max_tokens",
        )


def _check_ids(param: str, token_ids: Collection[int], vocab_size: int) -> None:
    if not token_ids or (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        return
    wrong = next(i for i in token_ids if not 0 <= i < vocab_size)
    raise RequestError(
        f"{param}: token id {wrong} is outside the vocabulary (0 to {vocab_size - 1})", param=param
    )


def _check_num_logprobs(param: str, value: int | None, info: EngineInfo) -> None:
    """-1 asks for the whole vocabulary, and is allowed where as many may be asked for."""
    if value is None or (info.vocab_size if value == -1 else value) <= info.max_logprobs:
        return
    wanted = f"the whole vocabulary ({info.vocab_size})" if value == -1 else str(value)
    raise RequestError(
        f"{param} asks for {wanted}, but at most {info.max_logprobs} are allowed",
        "the limit is max-logprobs of the engine (-1: no limit)",
        param=param,
    )
