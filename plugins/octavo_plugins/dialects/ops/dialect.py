"""What operators and their tools ask: health, counts, pauses and sleep.

Knows these routes. Does not know how health is found out, counts are kept, or engines are steered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from litestar import Response, get
from prometheus_client import CONTENT_TYPE_LATEST

from octavo import __version__
from octavo.errors import EngineDeadError
from octavo.interfaces.dialect import Dialect
from octavo_plugins.dialects.ops.steering import steering_routes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext
    from octavo.serving.models import ServedModel

#: how long a scrape waits for counts that are taken between two steps; then it shows older ones
_STATS_TIMEOUT_S = 0.25
_UNAVAILABLE = 503


class OpsDialect(Dialect):
    """The routes of operators. All but /health, /live and /ready need the key where one is set."""

    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""

        @get(["/health", "/ping"])
        async def health() -> Response[bytes]:
            """Answer 200 when every engine makes progress; otherwise EngineDeadError says 503."""
            await asyncio.gather(*(model.client.ping() for model in context.models))
            return Response(b"", media_type="text/plain")

        @get("/live", sync_to_thread=False)
        def live() -> Response[bytes]:
            """Answer 200 as long as this process answers at all."""
            return Response(b"", media_type="text/plain")

        @get("/ready", sync_to_thread=False)
        def ready() -> Response[dict[str, str]]:
            """Answer 200 when requests would be taken, else 503; the answer says why."""
            found = {model.name: _readiness(model) for model in context.models}
            is_ready = all(state in {"ready", "unloaded"} for state in found.values())
            return Response(found, status_code=200 if is_ready else _UNAVAILABLE)

        @get("/version", sync_to_thread=False)
        def version() -> dict[str, str]:
            return {"version": __version__}

        @get("/load", sync_to_thread=False)
        def load() -> dict[str, int]:
            """Answer how many sequences run or wait."""
            return {"server_load": sum(model.client.num_calls for model in context.models)}

        @get("/metrics")
        async def metrics() -> Response[bytes]:
            await asyncio.gather(*(_refresh(model) for model in context.models))
            return Response(context.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

        return [health, live, ready, version, load, metrics, *steering_routes(context)]


def _readiness(model: ServedModel) -> str:
    """Return a word for where a model stands with new requests."""
    client = model.client
    if client.gate.sleep_level is not None:
        return "sleeping"
    if client.gate.is_paused:
        return "paused"
    return client.state.value


async def _refresh(model: ServedModel) -> None:
    """Take the engine's counts; in a long step the last ones stand."""
    try:
        model.metrics.take_stats(await asyncio.wait_for(model.client.stats(), _STATS_TIMEOUT_S))
    except TimeoutError:
        return
    except EngineDeadError:
        model.metrics.take_stats(None)
