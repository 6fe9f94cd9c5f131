"""The stock HTTP dialects: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.dialect import Dialect


class Plugin(OctavoSpecs):
    """Declares the stock HTTP dialects."""

    def octavo_dialects(self) -> Iterator[Component[Dialect]]:
        """Yield openai, anthropic, pooling, text, ops."""
        yield Component(
            name="openai",
            target="octavo_plugins.dialects.openai.dialect:OpenAIDialect",
            summary="/v1/models, chat/completions, completions, responses, embeddings",
        )
        yield Component(
            name="anthropic",
            target="octavo_plugins.dialects.anthropic.dialect:AnthropicDialect",
            summary="/v1/messages, /v1/messages/count_tokens",
        )
        yield Component(
            name="pooling",
            target="octavo_plugins.dialects.pooling.dialect:PoolingDialect",
            summary="/pooling, /score, /rerank",
        )
        yield Component(
            name="text",
            target="octavo_plugins.dialects.text.dialect:TextDialect",
            summary="/tokenize, /detokenize",
        )
        yield Component(
            name="ops",
            target="octavo_plugins.dialects.ops.dialect:OpsDialect",
            summary="/health, /ready, /metrics, /sleep, /pause and what else operators need",
        )


plugin = Plugin()
