"""The fields of Anthropic's bodies, with vLLM's extra ones.

Knows names and types. Does not know what values mean (`params`, `history`, `tools`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from octavo_plugins.dialects.shared.bodies import CommonBody, FieldRules
from octavo_plugins.dialects.shared.foreign_forms import foreign_forms, said_by

RULES: Final = FieldRules(
    unsupported={
        "container": (), "mcp_servers": ([],), "watermarking": (False,),
        "kv_transfer_params": (), **foreign_forms("output_config", "output_format"),
    },
    without_effect=frozenset({
        "service_tier", "context_management", "inference_geo", "cache_control", "betas", "speed",
    }),
    advice=said_by("output_config.format"),
)  # fmt: skip


class CountBody(CommonBody, kw_only=True):
    """POST /v1/messages/count_tokens: all that makes the prompt."""

    rules: ClassVar[FieldRules] = RULES

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesBody(CountBody, kw_only=True):
    """POST /v1/messages."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
