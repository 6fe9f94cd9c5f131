"""From a chat's or a completion's body to `SamplingParams`.

Knows the fields' meaning. Does not know JSON, prompts' text or answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo_plugins.dialects.openai.beams import beam_sampling, check_no_search
from octavo_plugins.dialects.openai.forms import form_names, form_of
from octavo_plugins.dialects.shared.calls import renamed, repetition_of, sampling_of

if TYPE_CHECKING:
    from octavo.sampling_params import SamplingParams
    from octavo_plugins.dialects.openai.bodies import ChatBody, CompletionBody, GenerationBody

_SAME_NAMES = (
    "n", "min_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "seed", "stop", "stop_token_ids",
    "ignore_eos", "include_stop_str_in_output", "skip_special_tokens",
    "spaces_between_special_tokens", "allowed_token_ids", "bad_words", "truncate_prompt_tokens",
    "truncation_side", "logprob_token_ids", "stream_interval",
)  # fmt: skip


def chat_params(body: ChatBody, defaults: SamplingParams) -> SamplingParams:
    """Return what a chat asks for. Without a limit it may fill the context."""
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    if body.top_logprobs is not None and body.top_logprobs < -1:
        raise RequestError(
            f"top_logprobs must be at least 0, or -1 for all, not {body.top_logprobs}",
            param="top_logprobs",
        )
    max_tokens = body.max_tokens if body.max_completion_tokens is None else (
        body.max_completion_tokens
    )  # fmt: skip
    with renamed({"logprobs": "top_logprobs"} | _limit_name(body)):
        params = _params(
            body,
            defaults,
            max_tokens=max_tokens,
            logprobs=_num_logprobs(body),
            prompt_logprobs=body.prompt_logprobs,
        )
        return replace(params, thinking_token_budget=body.thinking_token_budget)


def completion_params(body: CompletionBody, defaults: SamplingParams) -> SamplingParams:
    """Return what a completion asks for. An echo with logprobs needs those of the prompt.

    Without a limit it has that of the model's files, or else 16 tokens.
    """
    prompt_logprobs = body.prompt_logprobs
    if body.logprob_token_ids and body.logprobs is None:
        raise RequestError("logprob_token_ids needs logprobs", param="logprob_token_ids")
    if body.echo and prompt_logprobs is None:
        # `max_tokens` 0 with echo is "score my prompt": the prompt is computed and nothing more
        prompt_logprobs = body.logprobs if body.max_tokens or body.logprobs is not None else 0
    return _params(
        body,
        defaults,
        max_tokens=defaults.max_tokens if body.max_tokens is None else body.max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def _num_logprobs(body: ChatBody) -> int | None:
    """Return how many of the likeliest tokens are told, None for no logprobs at all.

    Tokens that are named are told in their place. Raises RequestError for these without logprobs.
    """
    if body.logprob_token_ids and not body.logprobs:
        raise RequestError("logprob_token_ids needs logprobs to be true", param="logprob_token_ids")
    return (body.top_logprobs or 0) if body.logprobs else None


def call_metadata(body: GenerationBody) -> dict[str, Any]:
    """Return what a request says of who asks: scheduling policies may read it."""
    given = {"user": body.user, "session_id": body.session_id}
    return {name: value for name, value in given.items() if value is not None}


def chat_names(body: ChatBody) -> dict[str, str]:
    """Return how the front end's names of parameters are called in a chat."""
    return {
        "prompt": "messages",
        "logprobs": "top_logprobs",
        # a form that nobody asks for by a field of its own is that of calls
        "structured_outputs": "tools",
        **_limit_name(body),
        **common_names(body),
    }


def common_names(body: GenerationBody) -> dict[str, str]:
    """Return how the front end's names of parameters are called in chats and completions."""
    adapters = "adapters" if body.adapters else "model"
    return {"lora_request": adapters, "beam_width": "n", **form_names(body)}


def _limit_name(body: ChatBody) -> dict[str, str]:
    is_new = body.max_completion_tokens is not None
    return {"max_tokens": "max_completion_tokens"} if is_new else {}


def _params(
    body: GenerationBody,
    defaults: SamplingParams,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingParams:
    _check(body)
    if body.use_beam_search:
        return beam_sampling(
            body, max_tokens=max_tokens, logprobs=logprobs, prompt_logprobs=prompt_logprobs
        )
    check_no_search(body)
    return sampling_of(
        body,
        defaults,
        _SAME_NAMES,
        max_tokens=max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        structured_outputs=form_of(body),
        repetition_detection=repetition_of(body.repetition_detection),
    )


def _check(body: GenerationBody) -> None:
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream to be true", param="stream_options")
    if body.prompt_logprobs is not None and body.stream:
        raise RequestError("prompt_logprobs cannot be streamed", param="prompt_logprobs")
    if body.truncation_side == "right" and body.truncate_prompt_tokens is None:
        raise RequestError("truncation_side needs truncate_prompt_tokens", param="truncation_side")
    n = 1 if body.n is None else body.n
    if body.best_of is not None and body.best_of != n:
        raise RequestError(
            f"best_of must be equal to n ({n}), not {body.best_of}: all choices are returned",
            param="best_of",
        )
