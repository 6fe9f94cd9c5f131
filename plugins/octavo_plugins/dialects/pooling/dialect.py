"""The routes of vectors and scores that vLLM, Jina and Cohere have.

Knows paths. Does not know bodies or answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from octavo.errors import RequestError
from octavo.interfaces.dialect import Dialect
from octavo_plugins.dialects.pooling.scores import RerankApi, RerankBody, ScoreApi, ScoreBody
from octavo_plugins.dialects.pooling.vectors import VectorApi
from octavo_plugins.dialects.shared.inputs import InputBody
from octavo_plugins.dialects.shared.routes import answering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar import Request
    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext


_RERANK = ("/rerank", "/v1/rerank", "/v2/rerank")


class PoolingDialect(Dialect):
    """/pooling, /score and /rerank, with the prefixes that clients put before them.

    /classify is refused in words.
    """

    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""
        vectors, scores, ranks = VectorApi(context), ScoreApi(context), RerankApi(context)
        return [
            answering("/pooling", vectors.handle, InputBody),
            *(answering(path, scores.handle, ScoreBody) for path in ("/score", "/v1/score")),
            *(
                answering(path, ranks.handle, RerankBody)
                for path in ("/rerank", "/v1/rerank", "/v2/rerank")
            ),
            answering("/classify", _refuse_classes),
        ]


async def _refuse_classes(request: Request[Any, Any, Any]) -> NoReturn:
    """Refuse: no family of models that can be loaded has such a head."""
    del request
    raise RequestError("no model here tells classes: it would need a head for them", param="model")
