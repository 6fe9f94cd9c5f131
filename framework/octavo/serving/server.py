"""The life of `octavo serve`: ready, serving, draining, gone.

A first SIGTERM or SIGINT stops accepting and lets running requests end; a second one, or the end
of `shutdown-timeout-s`, ends them. Then the engine process ends, and the exit code is 0. When the
engine cannot be kept running the server ends by itself, with an error.

Knows signals, uvicorn and the order of things. Does not know routes or requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from typing import TYPE_CHECKING, Any

import uvicorn

from octavo import __version__
from octavo.serving.application import Application
from octavo.serving.models import unload_idle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from octavo.serving.app import Shell
    from octavo.serving.client import RestartPolicy
    from octavo.serving.models import ServedModel
    from octavo.serving.plans import ServerPlan

_logger = logging.getLogger("octavo.serving")

#: how long streams may take to write their last event once the engine is gone
_FAREWELL_S = 2.0
_TICK_S = 1.0
#: longer than the idle time of common proxies, so that it is they who close
_KEEP_ALIVE_S = 75


def serve(plan: ServerPlan, restart: RestartPolicy | None = None) -> int:
    """Serve until told to stop. Returns the exit code.

    Raises the engine's typed error when it cannot start, EngineDeadError when it cannot be kept
    running. Nothing is left running in any case.
    """
    loop_factory = _http_config("").get_loop_factory()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_Lifecycle(plan, restart).run())


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers, and asleep while nothing happens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._wake = asyncio.Event()

    def stop(self, *, is_forced: bool = False) -> None:
        """Stop accepting; running requests may end, or are cut off with `is_forced`."""
        self.should_exit = True
        self.force_exit = self.force_exit or is_forced
        self._wake.set()

    async def main_loop(self) -> None:
        """Wait to be stopped; once a second the Date header is renewed."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _TICK_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the lifecycle."""
        yield


class _Lifecycle:
    """One server from the start of its engine to the end of its process."""

    def __init__(self, plan: ServerPlan, restart: RestartPolicy | None) -> None:
        self._plan = plan
        self._restart = restart
        self._started_s = time.monotonic()
        self._stop_asked = asyncio.Event()
        self._force_asked = asyncio.Event()

    async def run(self) -> int:
        """Go through it. Returns the exit code; raises what ends the server with an error."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        application = Application(self._plan, self._restart)
        try:
            app = await self._start(application)
            if app is not None:
                await self._serve(application, app)
        finally:
            self._plan.listener.close()
            await application.close()
        return 0

    def _on_signal(self, number: int) -> None:
        if self._stop_asked.is_set():
            self._force_asked.set()
            return
        name = signal.Signals(number).name
        _logger.warning("%s: stopping; a second signal ends running requests", name)
        self._stop_asked.set()

    async def _start(self, application: Application) -> Shell | None:
        """Wait for the first engine. Returns None when the server was told to stop meanwhile."""
        starting = asyncio.create_task(application.load())
        stopping = asyncio.create_task(self._stop_asked.wait())
        await _first_of(starting, stopping)
        stopping.cancel()
        if starting.done():
            return starting.result()
        starting.cancel()
        await _first_of(starting)
        return None

    async def _serve(self, application: Application, app: Shell) -> None:
        models = application.models
        config = _http_config(app)
        config.load()
        config.ssl = self._plan.tls
        http = HttpServer(config)
        serving = asyncio.create_task(http.serve(sockets=[self._plan.listener]))
        stopping = asyncio.create_task(self._stop_asked.wait())
        _logger.info(
            "octavo %s serves %s at %s, ready after %.1f s",
            __version__, ", ".join(model.name for model in models), self._plan.url,
            time.monotonic() - self._started_s,
        )  # fmt: skip
        failures = [model.client.failed for model in models]
        unloading = asyncio.create_task(self._unload_idle(models))
        await _first_of(serving, stopping, unloading, *failures)
        stopping.cancel()
        unloading.cancel()
        http.stop()
        has_failed = any(failure.done() for failure in failures)
        if not has_failed:
            await self._drain(serving)
        await application.close()  # what still runs gets an error as its last event
        await _first_of(serving, timeout_s=_FAREWELL_S)
        http.stop(is_forced=True)
        await serving
        for failure in failures:
            if failure.done():
                failure.result()

    async def _unload_idle(self, models: Sequence[ServedModel]) -> None:
        """Unload models that nobody uses, where that is asked for; never returns."""
        idle_s = self._plan.settings.idle_seconds
        if idle_s is None:
            await asyncio.get_running_loop().create_future()
        else:
            await unload_idle(models, idle_s)

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        """Let running requests end, until time is up or a second signal comes."""
        forcing = asyncio.create_task(self._force_asked.wait())
        await _first_of(serving, forcing, timeout_s=self._plan.settings.shutdown_timeout_s)
        forcing.cancel()
        if not serving.done():
            _logger.warning("ending requests that still run")


async def _first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Wait until one of the futures is done, or time is up; cancel and raise nothing."""
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


def _http_config(app: Shell | str) -> uvicorn.Config:
    return uvicorn.Config(
        app=app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="off",
        log_level="warning",  # of its own start and end, ours says more
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
