"""POST /v1/responses, and what can be done with a response that is kept.

Knows the order of work and the routes. Does not know shapes, or how templates are rendered.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from litestar import Request, Response, delete, get, post

from octavo.errors import RequestError
from octavo_plugins.dialects.openai.responses.answers import ResponseWriter, new_response
from octavo_plugins.dialects.openai.responses.bodies import ResponsesBody
from octavo_plugins.dialects.openai.responses.history import items_of
from octavo_plugins.dialects.openai.responses.params import NAMES, asked_of, unheeded
from octavo_plugins.dialects.openai.responses.parts import PARTS
from octavo_plugins.dialects.openai.responses.store import Record, ResponseStore
from octavo_plugins.dialects.shared.calls import renamed
from octavo_plugins.dialects.shared.exchange import (
    read_body,
    reply,
    report_unheeded,
    report_unknown,
)
from octavo_plugins.dialects.shared.identity import Identities
from octavo_plugins.dialects.shared.parts import unread_parts
from octavo_plugins.dialects.shared.replies import json_reply
from octavo_plugins.dialects.shared.routes import answering
from octavo_plugins.dialects.shared.turns import start_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext
    from octavo.serving.streaming import EventStream

_PATH = "/v1/responses"


class ResponsesApi:
    """Answers, and keeps the answers."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._identities = Identities("resp_")
        self._store = ResponseStore()

    def routes(self) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""

        @get(f"{_PATH}/{{response_id:str}}", sync_to_thread=False)
        def retrieve(response_id: str, request: Request[Any, Any, Any]) -> Response[bytes]:
            if request.query_params.get("stream", "false") != "false":
                raise RequestError("what is kept cannot be streamed again", param="stream")
            return json_reply(self._store.find(response_id).response)

        @delete(f"{_PATH}/{{response_id:str}}", status_code=200, sync_to_thread=False)
        def remove(response_id: str) -> Response[bytes]:
            self._store.delete(response_id)
            return json_reply({"id": response_id, "object": "response", "deleted": True})

        @post(f"{_PATH}/{{response_id:str}}/cancel", sync_to_thread=False)
        def cancel(response_id: str) -> Response[bytes]:
            return json_reply(self._cancelled(response_id))

        return [answering(_PATH, self.handle, ResponsesBody), retrieve, remove, cancel]

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes] | EventStream:
        """Answer one request."""
        decoded = await read_body(request, ResponsesBody, self._context)
        body, is_strict = decoded.body, self._context.settings.strict_fields
        report_unheeded(decoded, unheeded(body), self._context)
        report_unknown(decoded, unread_parts(body, PARTS), self._context)
        before = self._items_before(body)
        with renamed(NAMES):
            target = await self._context.target(body.model)
            # ids are those by which responses are found again: no client may choose one
            identity = replace(
                self._identities.next(target.name, body.request_id), id=f"resp_{uuid.uuid4().hex}"
            )
            asked = asked_of(body, before, target.model.preprocessor.default_sampling_params())
            turn, generation = await start_turn(
                decoded, asked, target, identity, is_strict=is_strict
            )
        ids = [one.request_id for call in generation.calls for one in call.requests]
        cancel = partial(target.model.client.end, ids)
        record = Record(new_response(body, asked, identity), before, cancel)
        store = None if body.store is False else self._store
        if store is not None:
            store.put(record)
        answer = ResponseWriter(record, generation, turn, store)
        return await reply(request, decoded, answer, generation, NAMES)

    def _items_before(self, body: ResponsesBody) -> list[dict[str, Any]]:
        """Return the items that the answer follows. Raises RequestNotFoundError."""
        items = items_of(body.input)
        if body.previous_response_id is None:
            return items
        record = self._store.find(body.previous_response_id, "previous_response_id")
        if record.cancel is not None:
            raise RequestError(
                "the previous response has not ended yet", param="previous_response_id"
            )
        return [*record.items, *items]

    def _cancelled(self, response_id: str) -> dict[str, Any]:
        """Return a response whose run is being ended. Raises RequestError for one that has."""
        record = self._store.find(response_id)
        if record.cancel is None:
            raise RequestError(f"the response is {record.response['status']} already")
        record.cancel()
        return record.response | {"status": "cancelled"}
