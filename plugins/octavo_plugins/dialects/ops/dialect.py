"""/health, /ping, /version and /metrics: what operators and their tools ask.

Knows these routes. Does not know how health is found out or counts are kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from litestar import Response, get
from prometheus_client import CONTENT_TYPE_LATEST

from octavo import __version__
from octavo.errors import EngineDeadError
from octavo.interfaces.dialect import Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext
    from octavo.serving.models import ServedModel

#: how long a scrape waits for counts that are taken between two steps; then it shows older ones
_STATS_TIMEOUT_S = 0.25


class OpsDialect(Dialect):
    """The routes of operators. All but /health need the API key where one is set."""

    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""

        @get(["/health", "/ping"])
        async def health() -> Response[bytes]:
            """Answer 200 when every engine makes progress; otherwise EngineDeadError says 503."""
            await asyncio.gather(*(model.client.ping() for model in context.models))
            return Response(b"", media_type="text/plain")

        @get("/version", sync_to_thread=False)
        def version() -> dict[str, str]:
            return {"version": __version__}

        @get("/metrics")
        async def metrics() -> Response[bytes]:
            await asyncio.gather(*(_refresh(model) for model in context.models))
            return Response(context.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

        return [health, version, metrics]


async def _refresh(model: ServedModel) -> None:
    """Take the engine's counts; in a long step the last ones stand."""
    try:
        model.metrics.take_stats(await asyncio.wait_for(model.client.stats(), _STATS_TIMEOUT_S))
    except TimeoutError:
        return
    except EngineDeadError:
        model.metrics.take_stats(None)
