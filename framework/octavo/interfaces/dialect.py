"""The dialect kind: one HTTP API in front of the served models.

Knows routes and what they may use. Does not know how requests run (`octavo.serving.generation`)
or how the server is started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext
    from octavo.serving.http_errors import ErrorShape


class Dialect(ABC):
    """Contributes routes, in the server process.

    H1  `routes` starts nothing and reads no file; a second call gives independent handlers.
    H2  a handler never blocks the event loop: what takes long goes through
        `octavo.serving.generation`, which tokenises large texts in a thread.
    H3  when the client goes away, what runs for it is aborted: a streamed answer is an
        `octavo.serving.streaming.EventStream`, any other waits inside `until_disconnect`.
    H4  no field of a request is ignored in silence: it is obeyed, refused, or reported.
    H5  errors are raised as `octavo.errors` has them. They and the shell's own are answered in
        OpenAI's shape, or in that which `error_shapes` has for the path.
    H6  its target imports neither torch nor transformers: the server process has no use for them.

    The shell has already limited the body's size, checked the API key and given the request an
    id (`octavo.serving.logs.request_id_var`).
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return Litestar route handlers or routers that serve this API."""

    def error_shapes(self) -> Sequence[ErrorShape]:
        """Return how errors are written at this API's paths, where it is not as OpenAI does."""
        return ()
