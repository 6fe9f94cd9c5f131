"""What the answers of chats and plain completions share: usage, and how streams end.

Knows OpenAI's shapes of both. Does not know the shape of an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.serving.streaming import event
from octavo_plugins.dialects.openai.answers import CompletionTokensDetails, usage_of
from octavo_plugins.dialects.shared.counting import TokenCounter

if TYPE_CHECKING:
    from octavo.serving.http_errors import ApiError
    from octavo_plugins.dialects.openai.answers import Usage

_DONE = event(b"[DONE]")


class UsageCounter(TokenCounter):
    """Counts the tokens of one answer, and writes them as OpenAI does."""

    def usage(self, num_reasoning_tokens: int | None = None) -> Usage:
        """Return the usage so far; the tokens of reasoning where somebody reads it."""
        usage = usage_of(self.num_prompt_tokens, self.num_completion_tokens, self.num_cached_tokens)
        if num_reasoning_tokens is not None:
            usage.completion_tokens_details = CompletionTokensDetails(num_reasoning_tokens)
        return usage


class StreamEnds:
    """How a stream of this API ends: an event with an `error` if it failed, and [DONE]."""

    def failure(self, told: ApiError) -> bytes:
        """Return the event of an error."""
        return event(told.body())

    def last(self) -> bytes:
        """Return the event that ends every stream."""
        return _DONE
