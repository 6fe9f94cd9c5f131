"""The routes of OpenAI's API.

Knows paths. Does not know bodies or answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Request, Response, get, post
from litestar.response.base import ASGIResponse

from octavo.interfaces.dialect import Dialect
from octavo_plugins.dialects.openai.chat import ChatApi
from octavo_plugins.dialects.openai.completions import CompletionApi
from octavo_plugins.dialects.openai.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServedModel, ServingContext


class OpenAIDialect(Dialect):
    """/v1/models, /v1/chat/completions and /v1/completions."""

    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""
        chat, completion = ChatApi(context), CompletionApi(context)

        @get("/v1/models")
        async def models() -> Response[bytes]:
            cards = [_card(model, name) for model in context.models for name in model.names]
            return json_reply({"object": "list", "data": cards})

        @get("/v1/models/{name:path}")
        async def model(name: str) -> Response[bytes]:
            wanted = name.removeprefix("/")
            return json_reply(_card(context.model(wanted), wanted))

        @post("/v1/chat/completions")
        async def chat_completions(request: Request[Any, Any, Any]) -> ASGIResponse:
            return _asgi(await chat.handle(request), request)

        @post("/v1/completions")
        async def completions(request: Request[Any, Any, Any]) -> ASGIResponse:
            return _asgi(await completion.handle(request), request)

        return [models, model, chat_completions, completions]


def _asgi(reply: Any, request: Request[Any, Any, Any]) -> ASGIResponse:
    """Return a reply, whole or streamed, as the one type that a handler may announce."""
    if isinstance(reply, ASGIResponse):
        return reply
    response: ASGIResponse = reply.to_asgi_response(None, request)
    return response


def _card(model: ServedModel, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "octavo",
        "root": model.name,
        "parent": None,
        "max_model_len": model.max_model_len,
        "permission": [],
    }
