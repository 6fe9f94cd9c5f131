"""The routes of OpenAI's API.

Knows paths. Does not know bodies or answers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from litestar import Response, get

from octavo.interfaces.dialect import Dialect
from octavo_plugins.dialects.openai.absent import absent_routes
from octavo_plugins.dialects.openai.adapters import AdapterApi, LoadBody, UnloadBody
from octavo_plugins.dialects.openai.bodies import ChatBody, CompletionBody
from octavo_plugins.dialects.openai.chat import ChatApi
from octavo_plugins.dialects.openai.completions import CompletionApi
from octavo_plugins.dialects.openai.embeddings import EmbeddingApi
from octavo_plugins.dialects.openai.responses.api import ResponsesApi
from octavo_plugins.dialects.shared.inputs import InputBody
from octavo_plugins.dialects.shared.replies import json_reply
from octavo_plugins.dialects.shared.routes import answering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.adapters import ServedAdapter
    from octavo.serving.context import ServingContext
    from octavo.serving.models import ServedModel


class OpenAIDialect(Dialect):
    """/v1/models, chat/completions, completions, responses, embeddings; vLLM's adapter routes."""

    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""
        adapters = AdapterApi(context)

        @get("/v1/models")
        async def models() -> Response[bytes]:
            cards = [_card(model, name) for model in context.models for name in model.names]
            cards += [_adapter_card(m, one) for m in context.models for one in m.adapters]
            ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"], "has_more": False}
            return json_reply({"object": "list", "data": cards, **ends})

        @get("/v1/models/{name:path}")
        async def model(name: str) -> Response[bytes]:
            wanted = name.removeprefix("/")
            found = context.find(wanted).model
            adapter = found.adapters.get(wanted)
            card = _card(found, wanted) if adapter is None else _adapter_card(found, adapter)
            return json_reply(card)

        return [
            models,
            model,
            answering("/v1/chat/completions", ChatApi(context).handle, ChatBody),
            answering("/v1/completions", CompletionApi(context).handle, CompletionBody),
            *ResponsesApi(context).routes(),
            answering("/v1/embeddings", EmbeddingApi(context).handle, InputBody),
            answering("/v1/load_lora_adapter", adapters.load, LoadBody),
            answering("/v1/unload_lora_adapter", adapters.unload, UnloadBody),
            *absent_routes(context),
        ]


def _card(model: ServedModel, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "octavo",
        "root": model.name,
        "parent": None,
        # as clients of Anthropic's read it, who ask at the same path
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(model.created_s, UTC).isoformat(),
        # of a model that was never loaded it is not known; `status` is as llama.cpp's router has it
        "max_model_len": model.max_model_len if model.is_known else None,
        "status": {"value": model.status},
        "permission": [],
    }


def _adapter_card(model: ServedModel, adapter: ServedAdapter) -> dict[str, Any]:
    """Return the card of an adapter, as vLLM has it: its folder is the root."""
    changes = {"created": adapter.created_s, "root": adapter.path, "parent": adapter.parent}
    return _card(model, adapter.name) | changes
