"""The fields of /tokenize and /detokenize, as vLLM has them.

Knows names and types. Does not know tokenizers.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from octavo_plugins.dialects.shared.bodies import CommonBody, FieldRules

#: fields of generating routes that ask for nothing here
RULES: Final = FieldRules(
    unsupported={
        "stream": (False,), "chat_template": (), "mm_processor_kwargs": ({},),
        "media_io_kwargs": ({},),
    },
    without_effect=frozenset({"priority", "cache_salt", "vllm_xargs", "user"}),
)  # fmt: skip


class TokenizeBody(CommonBody, kw_only=True):
    """POST /tokenize: a `prompt`, or `messages`, which are rendered by the model's template.

    `add_special_tokens` is by default true of a prompt; a template has written its own.
    """

    rules: ClassVar[FieldRules] = RULES

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(CommonBody, kw_only=True):
    """POST /detokenize."""

    rules: ClassVar[FieldRules] = RULES

    tokens: list[int]
