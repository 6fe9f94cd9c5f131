"""The fields of /v1/responses, with vLLM's extra ones.

Knows names and types. Does not know what values mean (`params`, `history`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from octavo_plugins.dialects.shared.bodies import CommonBody, FieldRules
from octavo_plugins.dialects.shared.foreign_forms import foreign_forms, said_by

RULES: Final = FieldRules(
    unsupported={
        "background": (False,), "conversation": (), "prompt": (), "truncation": ("disabled",),
        "top_logprobs": (0,), "watermarking": (False,), "kv_transfer_params": (),
        "previous_input_messages": (), "enable_response_messages": (False,),
        **foreign_forms("text"),
    },
    without_effect=frozenset({
        "include", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "max_tool_calls", "stream_options", "context_management",
    }),
    advice=said_by("text.format"),
)  # fmt: skip


class ResponsesBody(CommonBody, kw_only=True):
    """POST /v1/responses. `input`: a text, or items."""

    rules: ClassVar[FieldRules] = RULES

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    request_id: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
