"""The routes of Anthropic's API.

Knows paths. Does not know bodies or answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.dialect import Dialect
from octavo.serving.http_errors import ErrorShape
from octavo_plugins.dialects.anthropic.bodies import CountBody, MessagesBody
from octavo_plugins.dialects.anthropic.errors import ID_HEADER, error_body
from octavo_plugins.dialects.anthropic.messages import MessagesApi
from octavo_plugins.dialects.shared.routes import answering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext

_MESSAGES = "/v1/messages"


class AnthropicDialect(Dialect):
    """/v1/messages and /v1/messages/count_tokens."""

    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""
        messages = MessagesApi(context)
        return [
            answering(_MESSAGES, messages.handle, MessagesBody),
            answering(f"{_MESSAGES}/count_tokens", messages.count, CountBody),
        ]

    def error_shapes(self) -> Sequence[ErrorShape]:
        """Return Anthropic's shape of errors, for the paths of messages."""
        return [ErrorShape(_MESSAGES, error_body, ID_HEADER)]
