"""POST /v1/embeddings: vectors of texts, as numbers or as base64.

Knows the shape of the answer. Does not know how vectors come about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo_plugins.dialects.shared.inputs import InputApi
from octavo_plugins.dialects.shared.pooling import in_format
from octavo_plugins.dialects.shared.replies import json_reply

if TYPE_CHECKING:
    from litestar import Request, Response

    from octavo.serving.context import ServingContext


class EmbeddingApi:
    """Answers embeddings."""

    def __init__(self, context: ServingContext) -> None:
        self._inputs = InputApi(context, "embd-")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Answer one request."""
        decoded, pooled = await self._inputs.pool(request)
        encoding = decoded.body.encoding_format
        data = [
            {"object": "embedding", "index": index, "embedding": in_format(vector, encoding)}
            for index, vector in enumerate(pooled.vectors)
        ]
        return json_reply(pooled.answer(data), decoded.headers)
