"""A batch on models of this machine: the serving application in this process, without a port.

So a body means what it means over HTTP, and errors are the same; the engine is a process of its
own here too, and is started again when it dies. Knows the order of things. Does not know terminals.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from octavo.batch.lines import LineReader
from octavo.batch.run import BatchRun
from octavo.serving.application import Application
from octavo.serving.client import EngineState, RestartPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octavo.batch.files import BatchInput, BatchOutput
    from octavo.batch.run import Progress
    from octavo.serving.app import Shell
    from octavo.serving.plans import AppPlan

#: what makes one answer of one request; other routes change the server
_URLS = frozenset(
    {
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses",
        "/v1/messages", "/v1/score", "/v1/rerank",
    }
)  # fmt: skip
#: many requests of one file may kill the engine
_RESTART = RestartPolicy(max_in_row=12, max_delay_s=2.0, healthy_after_s=5.0)


def run_local_batch(
    plan: AppPlan,
    files: tuple[BatchInput, BatchOutput],
    max_concurrency: int,
    on_progress: Callable[[Progress], None],
) -> bool:
    """Answer a file; return whether all of it was, and False after SIGINT or SIGTERM.

    Raises the engine's typed error when it cannot start or be kept running. Nothing is left
    running in any case.
    """
    return asyncio.run(_run(plan, files, max_concurrency, on_progress))


async def _run(
    plan: AppPlan,
    files: tuple[BatchInput, BatchOutput],
    max_concurrency: int,
    on_progress: Callable[[Progress], None],
) -> bool:
    batch, output = files
    application = Application(plan, _RESTART)
    with _cancelled_by_signals() as was_stopped:
        try:
            app = await application.load()
            lines = LineReader(_served(app))
            run = BatchRun(app, output, lambda: _is_up(application), max_concurrency)
            await run.run(map(lines.read, batch), on_progress)
        except asyncio.CancelledError:
            if not was_stopped():
                raise
            return False
        finally:
            await application.close()
    return True


def _served(app: Shell) -> frozenset[str]:
    return _URLS & {route.path for route in app.litestar.routes}


def _is_up(application: Application) -> bool:
    """Return whether no engine is just being started. Raises when one was given up."""
    for model in application.models:
        if model.client.failed.done():
            model.client.failed.result()
    starting = {EngineState.STARTING, EngineState.RESTARTING}
    return not any(model.client.state in starting for model in application.models)


@contextlib.contextmanager
def _cancelled_by_signals() -> Iterator[Callable[[], bool]]:
    """While inside, the first SIGINT or SIGTERM cancels the running task; more change nothing.

    Yields what tells whether there was one.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in one
    numbers: list[int] = []

    def stop(number: int) -> None:
        if not numbers:
            task.cancel()
        numbers.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        yield lambda: bool(numbers)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
