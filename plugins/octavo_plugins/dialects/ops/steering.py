"""POST /sleep, /wake_up, /pause, /resume, /reset_prefix_cache, /abort_requests, and what they did.

Each concerns the model that `?model=` names, or all. Parameters are in the address, as vLLM has
them. A sleeping model refuses requests with 503 until it is woken up; a paused one lets them wait.

Knows these routes. Does not know how engines are steered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, get, post

from octavo import __version__
from octavo.errors import RequestError, UnsupportedError, did_you_mean
from octavo.serving import steering
from octavo.serving.http_errors import PageRefusedError
from octavo.serving.openapi import BODY
from octavo.serving.steering import Mode
from octavo_plugins.dialects.shared.bodies import decode_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litestar.types import ControllerRouterHandler

    from octavo.serving.client import EngineClient
    from octavo.serving.context import ServingContext
    from octavo.serving.models import ServedModel

_LEVELS = ("0", "1", "2")


class AbortBody(msgspec.Struct, forbid_unknown_fields=True):
    """The requests to be ended, by the clients' ids (`X-Request-Id`) or those of the answers."""

    request_ids: list[str]


def steering_routes(context: ServingContext) -> Sequence[ControllerRouterHandler]:
    """Return the handlers that change what engines do, and those that say what they did."""
    return [*_sleep_routes(context), *_pause_routes(context), *_other_routes(context)]


def _sleep_routes(context: ServingContext) -> Sequence[ControllerRouterHandler]:
    @post("/sleep", status_code=200)
    async def sleep(request: Request[Any, Any, Any]) -> dict[str, Any]:
        query = _Query(request, ("model", "level", "mode"))
        level, mode = query.one_of("level", _LEVELS, "1"), query.mode(Mode.ABORT)
        if level == "0":
            raise UnsupportedError(
                "sleep at level 0 keeps all memory", "pause instead: POST /pause", "levels: 1, 2"
            )
        if mode is Mode.KEEP:
            raise UnsupportedError(
                "a model that sleeps has no memory in which requests could be kept",
                "modes: abort, wait",
            )
        clients = query.clients(context)
        await asyncio.gather(*(steering.sleep(one, int(level), mode) for one in clients))
        return {"status": "sleeping", "level": int(level)}

    @post("/wake_up", status_code=200)
    async def wake_up(request: Request[Any, Any, Any]) -> dict[str, Any]:
        clients = _Query(request, ("model", "tags")).clients(context)
        await asyncio.gather(*map(steering.wake_up, clients))
        return {"status": "awake"}

    @get("/is_sleeping")
    async def is_sleeping(request: Request[Any, Any, Any]) -> dict[str, bool]:
        gates = [one.gate for one in _Query(request, ("model",)).clients(context)]
        return {"is_sleeping": any(gate.sleep_level is not None for gate in gates)}

    return [sleep, wake_up, is_sleeping]


def _pause_routes(context: ServingContext) -> Sequence[ControllerRouterHandler]:
    @post("/pause", status_code=200)
    async def pause(request: Request[Any, Any, Any]) -> dict[str, str]:
        query = _Query(request, ("model", "mode", "clear_cache"))
        mode, clears = query.mode(Mode.ABORT), query.is_true("clear_cache", is_default=True)
        clients = query.clients(context)
        await asyncio.gather(*(steering.pause(one, mode) for one in clients))
        if clears and mode is not Mode.KEEP:
            await asyncio.gather(*map(steering.reset_prefix_cache, clients))
        return {"status": "paused"}

    @post("/resume", status_code=200)
    async def resume(request: Request[Any, Any, Any]) -> dict[str, str]:
        clients = _Query(request, ("model",)).clients(context)
        await asyncio.gather(*map(steering.resume, clients))
        return {"status": "resumed"}

    @get("/is_paused")
    async def is_paused(request: Request[Any, Any, Any]) -> dict[str, bool]:
        clients = _Query(request, ("model",)).clients(context)
        return {"is_paused": any(one.gate.is_paused for one in clients)}

    return [pause, resume, is_paused]


def _other_routes(context: ServingContext) -> Sequence[ControllerRouterHandler]:
    @post("/reset_prefix_cache", status_code=200)
    async def reset_prefix_cache(request: Request[Any, Any, Any]) -> dict[str, bool]:
        query = _Query(request, ("model", "reset_running_requests"))
        clients = query.clients(context)
        if query.is_true("reset_running_requests", is_default=False):
            for client in clients:
                client.end(client.request_ids)
        done = await asyncio.gather(*map(steering.reset_prefix_cache, clients))
        return {"success": all(done)}

    @post("/abort_requests", status_code=200, opt={BODY: AbortBody})
    async def abort_requests(request: Request[Any, Any, Any]) -> dict[str, int]:
        body = decode_plain(await request.body(), AbortBody)
        clients = _Query(request, ("model",)).clients(context)
        return {"aborted": sum(steering.abort_requests(one, body.request_ids) for one in clients)}

    @get("/server_info", sync_to_thread=False)
    def server_info() -> dict[str, Any]:
        """Answer what is served, and how it is set: nothing of the server's own, nor keys."""
        models = [_info(model) for model in context.models]
        return {"version": __version__, "models": models}

    return [reset_prefix_cache, abort_requests, server_info]


def _info(model: ServedModel) -> dict[str, Any]:
    return {
        "names": list(model.names),
        "adapters": model.adapters.names,
        "status": model.status,
        "max_model_len": model.max_model_len if model.is_known else None,
        "config": model.settings,
    }


class _Query:
    """The parameters in a request's address. Raises RequestError for one that is not known."""

    def __init__(self, request: Request[Any, Any, Any], names: Sequence[str]) -> None:
        self._request = request
        self._given: Mapping[str, str] = dict(request.query_params)
        for name in self._given:
            if name not in names:
                raise RequestError(
                    f"unknown parameter {name!r:.80}",
                    did_you_mean(name, names),
                    f"parameters: {', '.join(names)}",
                    param=name[:80],
                )

    def one_of(self, name: str, values: Sequence[str], default: str) -> str:
        """Return a parameter that is one of these words."""
        given = self._given.get(name, default)
        if given not in values:
            raise RequestError(
                f"{name} must be one of {', '.join(values)}, not {given!r:.80}", param=name
            )
        return given

    def mode(self, default: Mode) -> Mode:
        """Return what is to become of requests that run."""
        return Mode(self.one_of("mode", [mode.value for mode in Mode], default.value))

    def is_true(self, name: str, *, is_default: bool) -> bool:
        """Return a parameter that is true or false."""
        default = "true" if is_default else "false"
        return self.one_of(name, ("true", "false"), default) == "true"

    def clients(self, context: ServingContext) -> list[EngineClient]:
        """Return the engines of the model that is named, or of all.

        Raises PageRefusedError for a page of another site: a browser sends a plain POST for any.
        """
        origin = self._request.headers.get("origin")
        cors = self._request.app.cors_config
        is_let_in = origin is None or (cors is not None and cors.is_origin_allowed(origin))
        if self._request.method == "POST" and not is_let_in:
            raise PageRefusedError(
                f"pages of {origin!r:.80} may not steer this server",
                "start it with --allowed-origins to let them",
            )
        name = self._given.get("model")
        models = context.models if name is None else (context.find(name).model,)
        return [model.client for model in models]
