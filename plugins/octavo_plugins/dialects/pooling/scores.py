"""POST /score and /rerank: how alike texts are, by the cosine of their vectors.

Knows vLLM's, Jina's and Cohere's shapes. Does not know how vectors come about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from octavo.errors import RequestError
from octavo.frontend.vectors import similarity
from octavo_plugins.dialects.shared.exchange import read_body
from octavo_plugins.dialects.shared.pooling import MAX_TEXTS, Pooler, PoolingBody
from octavo_plugins.dialects.shared.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar import Request, Response

    from octavo.serving.context import ServingContext

#: the names under which clients send the texts to be compared, first ones and second ones
_FIRST = ("text_1", "queries", "data_1")
_SECOND = ("text_2", "documents", "items", "data_2")


class ScoreBody(PoolingBody, kw_only=True):
    """POST /score. One of each side's names is given: one text, or as many as on the other."""

    text_1: str | list[str] | None = None
    queries: str | list[str] | None = None
    data_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    documents: str | list[str] | None = None
    items: str | list[str] | None = None
    data_2: str | list[str] | None = None


class DocumentText(msgspec.Struct):
    """A document as an object; what else it holds is not read."""

    text: str


class RerankBody(PoolingBody, kw_only=True):
    """POST /rerank. `top_n` None or 0: all documents."""

    query: str
    documents: list[str | DocumentText]
    top_n: int | None = None
    return_documents: bool | None = None


class ScoreApi:
    """Answers comparisons of pairs."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._pooler = Pooler(context, "score-")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Answer one request."""
        decoded = await read_body(request, ScoreBody, self._context)
        body = decoded.body
        first_name, ones = _texts(body, _FIRST)
        second_name, others = _texts(body, _SECOND)
        if len(ones) not in {1, len(others)}:
            raise RequestError(
                f"{len(ones)} texts cannot be compared with {len(others)}",
                "give one, or one for each",
                param=first_name,
            )
        target = await self._pooler.target(body)
        names = {"prompt": second_name, "n": second_name}
        pooled = await self._pooler.pool(request, body, target, [*ones, *others], names)
        first, second = pooled.vectors[: len(ones)], pooled.vectors[len(ones) :]
        pairs = zip(first * (len(second) // len(first)), second, strict=True)
        data = [
            {"index": index, "object": "score", "score": similarity(one, other)}
            for index, (one, other) in enumerate(pairs)
        ]
        return json_reply(pooled.answer(data), decoded.headers)


class RerankApi:
    """Answers with documents in the order of their likeness to a query."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._pooler = Pooler(context, "rerank-")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Answer one request."""
        decoded = await read_body(request, RerankBody, self._context)
        body = decoded.body
        texts = [one if isinstance(one, str) else one.text for one in body.documents]
        _check_documents(texts, body.top_n)
        target = await self._pooler.target(body)
        names = {"prompt": "documents", "n": "documents"}
        pooled = await self._pooler.pool(request, body, target, [body.query, *texts], names)
        query, *vectors = pooled.vectors
        scores = [similarity(query, vector) for vector in vectors]
        ranked = sorted(range(len(texts)), key=lambda index: -scores[index])
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": scores[index]}
            for index in ranked[: body.top_n or None]
        ]
        if body.return_documents is not False:
            for one in results:
                one["document"] = {"text": texts[one["index"]]}
        identity = pooled.identity
        answer = {"id": identity.id, "model": identity.model, "usage": pooled.usage()}
        return json_reply({**answer, "results": results}, decoded.headers)


def _check_documents(texts: Sequence[str], top_n: int | None) -> None:
    if not texts:
        raise RequestError(
            "documents is an empty list: there is nothing to rank", param="documents"
        )
    if len(texts) >= MAX_TEXTS:
        raise RequestError(
            f"documents has {len(texts)} entries, and at most {MAX_TEXTS - 1} are taken at once",
            param="documents",
        )
    if top_n is not None and top_n < 0:
        raise RequestError(f"top_n must be at least 0, not {top_n}", param="top_n")


def _texts(body: ScoreBody, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the texts of one side, and the name they came under. Raises RequestError."""
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) != 1:
        raise RequestError(f"give one of {', '.join(names)}", param=(given or list(names))[0])
    name = given[0]
    value = getattr(body, name)
    texts = [value] if isinstance(value, str) else value
    if not texts:
        raise RequestError(f"{name} is an empty list: there is nothing to compare", param=name)
    return name, texts
