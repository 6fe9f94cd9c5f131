"""Routes of OpenAI's that no model or store here stands behind: they say so, and what there is.

Knows paths. Does not know what is served: the context does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from litestar import HttpMethod, route

from octavo.serving.http_errors import NotServedError
from octavo.serving.openapi import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litestar import Request
    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext

#: what is asked for below a path, and what to do instead, if there is something
ABSENT: Final[Mapping[str, tuple[str, str]]] = {
    "/v1/audio": ("audio", ""),
    "/v1/images": ("images", ""),
    "/v1/videos": ("videos", ""),
    "/v1/moderations": ("moderation", ""),
    "/v1/realtime": ("realtime sessions", "stream: POST /v1/chat/completions"),
    "/v1/fine_tuning": ("fine-tuning", ""),
    "/v1/files": ("files", "run a file of requests: octavo run-batch"),
    "/v1/uploads": ("uploads", ""),
    "/v1/batches": ("batches", "run a file of requests: octavo run-batch"),
    "/v1/assistants": ("assistants", "answers that go on: POST /v1/responses"),
    "/v1/threads": ("threads", "answers that go on: POST /v1/responses"),
    "/v1/conversations": ("conversations", "answers that go on: POST /v1/responses"),
    "/v1/vector_stores": ("vector stores", "vectors: POST /v1/embeddings"),
    "/v1/containers": ("containers", ""),
    "/v1/evals": ("evals", ""),
}


def absent_routes(context: ServingContext) -> Sequence[ControllerRouterHandler]:
    """Return handlers of these paths, and all below, that refuse every request."""
    return [_refusing(path, *what, context) for path, what in ABSENT.items()]


def _refusing(
    path: str, what: str, instead: str, context: ServingContext
) -> ControllerRouterHandler:
    methods = [HttpMethod.GET, HttpMethod.POST, HttpMethod.DELETE]

    @route(
        [path, f"{path}/{{rest:path}}"], http_method=methods, status_code=501, opt={HIDDEN: True}
    )
    async def refuse(request: Request[Any, Any, Any]) -> None:
        names = ", ".join(name for model in context.models for name in model.names)
        raise NotServedError(
            f"this server does not serve {what}: {request.scope['path']:.80}",
            instead,
            f"models that generate text: {names}",
        )

    return refuse
