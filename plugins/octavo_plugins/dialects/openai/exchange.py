"""What every generating endpoint does around its own work: read the body, write the answer.

Knows requests, events and replies. Does not know the shapes of any endpoint.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from octavo.serving.generation import in_thread_if_long
from octavo.serving.streaming import EventStream, until_disconnect
from octavo_plugins.dialects.openai.bodies import GenerationBody, decode_body
from octavo_plugins.dialects.openai.calls import guarded
from octavo_plugins.dialects.openai.params import renamed
from octavo_plugins.dialects.openai.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from litestar import Request, Response

    from octavo.serving.context import ServingContext
    from octavo.serving.generation import Generation
    from octavo_plugins.dialects.openai.bodies import Decoded

T = TypeVar("T", bound=GenerationBody)


class AnswerWriter(Protocol):
    """Writes the answer to one request, whole or in chunks."""

    async def whole(self) -> Any:
        """Return the answer when all has ended."""

    def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of the answer, without [DONE]."""


async def read_body(
    request: Request[Any, Any, Any], shape: type[T], context: ServingContext
) -> Decoded[T]:
    """Return a request's body. Raises RequestError naming the field at fault."""
    raw = await request.body()
    decode = partial(
        decode_body,
        is_strict=context.settings.strict_fields,
        declared=context.declared_params,
        unread=context.unread_fields,
    )
    return await in_thread_if_long(len(raw), lambda: decode(raw, shape))


async def reply(
    request: Request[Any, Any, Any],
    decoded: Decoded[Any],
    answer: AnswerWriter,
    generation: Generation,
    names: Mapping[str, str],
) -> Response[bytes] | EventStream:
    """Return the answer as the body asks for it. A client that leaves aborts the generation.

    `names` are those of `renamed`: a request may be found wrong only while it runs.
    """
    if decoded.body.stream:
        return EventStream(guarded(answer.events(), generation, names), decoded.headers)
    with closing(generation), renamed(names):
        async with until_disconnect(request.receive, generation.abandon):
            return json_reply(await answer.whole(), decoded.headers)
