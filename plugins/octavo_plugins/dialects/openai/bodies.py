"""The fields of OpenAI's bodies, with vLLM's extra ones.

Knows names and types. Does not know what values mean (`params`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

from octavo.errors import RequestError
from octavo_plugins.dialects.shared.bodies import CommonBody, FieldRules
from octavo_plugins.dialects.shared.foreign_forms import foreign_forms, said_by

if TYPE_CHECKING:
    from collections.abc import Mapping

#: fields that are known and refused, unless they hold one of the values that ask for nothing
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    **foreign_forms(
        "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
        "guided_grammar", "guided_json_object", "guided_whitespace_pattern",
    ),
    "early_stopping": (False,), "suffix": ("",), "prompt_embeds": (), "watermarking": (False,),
    "audio": (), "modalities": (["text"],), "prediction": (), "web_search_options": (),
    "chat_template": (), "mm_processor_kwargs": ({},), "media_io_kwargs": ({},),
    "kv_transfer_params": (), "ec_transfer_params": (), "routed_experts_prompt_start": (),
    "return_mm_kwargs": (False,), "mm_payload": (), "return_token_offsets": (False,),
}  # fmt: skip

#: what chats have, and plain completions have not
_OF_CHATS: Mapping[str, tuple[Any, ...]] = {
    "tools": (), "tool_choice": ("none",), "functions": (), "function_call": ("none",),
    "thinking_token_budget": (-1,),
}  # fmt: skip
_HABITS_OF_CHATS = frozenset({"parallel_tool_calls", "reasoning_effort", "include_reasoning"})

_ADVICE = said_by("response_format")
_PARTS = {
    "stream_options": frozenset({"include_usage", "continuous_usage_stats"}),
    "repetition_detection": frozenset({"max_pattern_size", "min_pattern_size", "min_count"}),
}

ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

#: fields that clients send by habit and that change nothing here; reported, never refused
WITHOUT_EFFECT = frozenset({
    "store", "metadata", "service_tier", "verbosity", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention",
})  # fmt: skip


class StreamOptions(msgspec.Struct):
    """What a stream says of its usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class AdapterField(msgspec.Struct, forbid_unknown_fields=True):
    """An adapter among several: how much of it, beside the factor in its own files."""

    name: str
    scale: float = 1.0


class GenerationBody(CommonBody, kw_only=True):
    """The fields that chat and plain completions share; null means not given."""

    rules: ClassVar[FieldRules] = FieldRules(UNSUPPORTED, WITHOUT_EFFECT, _ADVICE, _PARTS)

    adapters: list[AdapterField] | None = None
    n: int | None = None
    best_of: int | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
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
    spaces_between_special_tokens: bool | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: str | None = None
    logprob_token_ids: list[int] | None = None
    repetition_detection: dict[str, int] | None = None
    stream_interval: int | None = None
    return_prompt_text: bool | None = None
    add_special_tokens: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    request_id: str | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_json_object: bool | None = None
    guided_whitespace_pattern: str | None = None
    user: str | None = None
    session_id: str | None = None

    @property
    def blend(self) -> dict[str, float]:
        """Return the scales of the adapters by name. Raises RequestError for one named twice."""
        adapters = self.adapters or []
        blend = {one.name: one.scale for one in adapters}
        if len(blend) < len(adapters):
            raise RequestError("an adapter is named twice: add up its scales", param="adapters")
        return blend

    @property
    def has_usage(self) -> bool:
        """Return whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def has_running_usage(self) -> bool:
        """Return whether every chunk of a stream has the usage so far."""
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


class ChatBody(GenerationBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    reasoning_effort: ReasoningEffort | None = None
    include_reasoning: bool | None = None
    thinking_token_budget: int | None = None


class CompletionBody(GenerationBody, kw_only=True):
    """POST /v1/completions. `prompt`: a text, texts, ids, or lists of ids."""

    rules: ClassVar[FieldRules] = FieldRules(
        {**UNSUPPORTED, **_OF_CHATS}, WITHOUT_EFFECT | _HABITS_OF_CHATS, _ADVICE, _PARTS
    )

    prompt: str | list[Any]
    logprobs: int | None = None
    echo: bool | None = None
