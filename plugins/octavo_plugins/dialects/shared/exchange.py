"""What every generating endpoint does around its own work: read the body, write the answer.

Knows requests, events and replies. Does not know the shapes of any endpoint.
"""

from __future__ import annotations

import logging
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from octavo.errors import OctavoError, RequestError
from octavo.serving.generation import in_thread_if_long
from octavo.serving.http_errors import api_error_of
from octavo.serving.streaming import EventStream, until_disconnect
from octavo_plugins.dialects.shared.bodies import MAX_NAMED_FIELDS, CommonBody, decode_body
from octavo_plugins.dialects.shared.calls import renamed
from octavo_plugins.dialects.shared.parts import top_field
from octavo_plugins.dialects.shared.replies import json_reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from litestar import Request, Response

    from octavo.serving.context import ServingContext
    from octavo.serving.generation import Generation
    from octavo.serving.http_errors import ApiError
    from octavo_plugins.dialects.shared.bodies import Decoded

T = TypeVar("T", bound=CommonBody)

_logger = logging.getLogger("octavo.serving")


class AnswerWriter(Protocol):
    """Writes the answer to one request, whole or in chunks."""

    async def whole(self) -> Any:
        """Return the answer when all has ended."""

    def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of the answer."""

    def failure(self, told: ApiError) -> bytes:
        """Return the event that tells of an error after the answer has begun."""

    def last(self) -> bytes:
        """Return what every stream ends with, also one that failed; possibly nothing."""


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


def report_unheeded(decoded: Decoded[Any], names: Sequence[str], context: ServingContext) -> None:
    """Report what is asked for and changes nothing; refuse it where the server is strict (H4)."""
    if names and context.settings.strict_fields:
        raise RequestError(
            f"{names[0]:.80} changes nothing here",
            "this server refuses fields without effect (strict-fields)",
            param=names[0].partition(".")[0],
        )
    decoded.ignored += names


def report_unknown(decoded: Decoded[Any], paths: Sequence[str], context: ServingContext) -> None:
    """Report fields of objects within a body that nobody knows; refuse them where strict (H4).

    `paths` are those of `parts`.
    """
    if not paths:
        return
    if context.settings.strict_fields:
        raise RequestError(
            f"unknown field {paths[0]!r:.80}",
            "this server refuses fields that it does not know (strict-fields)",
            param=top_field(paths[0]),
        )
    named = [f"{path!r:.80}" for path in paths[:MAX_NAMED_FIELDS]]
    _logger.warning("ignored fields: %s", ", ".join(named))
    decoded.ignored += paths


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
        return EventStream(guarded(answer, generation, names), decoded.headers)
    with closing(generation), renamed(names):
        async with until_disconnect(request.receive, generation.abandon):
            return json_reply(await answer.whole(), decoded.headers)


async def guarded(
    answer: AnswerWriter, generation: Generation, names: Mapping[str, str]
) -> AsyncGenerator[bytes, None]:
    """Yield an answer's events and what ends them. A failure becomes one event (B17).

    `names` are those of `renamed`. Whatever way the stream ends, the generation is closed at once.
    """
    try:
        with renamed(names):
            async with aclosing(answer.events()) as events:
                async for chunk in events:
                    yield chunk
    except OctavoError as error:
        _logger.warning("a stream ended with an error: %s", error.headline)
        yield answer.failure(api_error_of(error))
    except Exception as error:
        _logger.exception("a stream failed")
        yield answer.failure(api_error_of(error))
    finally:
        generation.close()
    if last := answer.last():
        yield last
