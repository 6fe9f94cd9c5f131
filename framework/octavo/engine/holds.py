"""Requests that wait for what they need beside the model: a grammar, an adapter.

The executor prepares it away from the steps; meanwhile its request is held and skipped, never
waited for. Knows futures. Does not know what is prepared, nor how.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from octavo.engine.request import Request
    from octavo.interfaces.executor import Executor

_REASON = "resources"


class Holds:
    """The requests whose resources are being prepared, and the futures of these."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._pending: dict[Request, list[Future[str]]] = {}
        #: called from any thread when something became ready: whoever sleeps may step again
        self.on_ready: Callable[[], None] = lambda: None

    def prepare(self, request: Request) -> None:
        """Ask for a request's resources, and hold it until they are there, or cannot be.

        What is known to be wrong already is told by `settle` as well: how a request ends does not
        depend on how fast that was found out.
        """
        source = request.source
        futures = [self._executor.prepare(use.spec) for use in source.adapters]
        if source.grammar is not None:
            futures.append(self._executor.prepare(source.grammar))
        if not futures:
            return
        if all(map(_is_there, futures)):
            self._name_content(request, futures)
            return
        request.held_by.add(_REASON)
        self._pending[request] = futures
        for future in futures:
            future.add_done_callback(lambda _: self.on_ready())

    def settle(self) -> list[tuple[Request, Exception]]:
        """Release the requests whose resources are there; return those that cannot have them."""
        failed: list[tuple[Request, Exception]] = []
        for request, futures in list(self._pending.items()):
            if not all(future.done() for future in futures):
                continue
            del self._pending[request]
            request.held_by.discard(_REASON)
            try:
                self._name_content(request, futures)
            except Exception as error:  # noqa: BLE001 - it becomes the request's own error
                failed.append((request, error))
        return failed

    def forget(self, request: Request) -> None:
        """Drop a request that has ended; one that is not held is ignored."""
        self._pending.pop(request, None)

    @property
    def has_news(self) -> bool:
        """Return whether `settle` would do anything."""
        return any(all(future.done() for future in futures) for futures in self._pending.values())

    def wait(self) -> bool:
        """Sleep until there is news. Returns False when nothing is being prepared."""
        futures = [one for futures in self._pending.values() for one in futures if not one.done()]
        if futures:
            wait(futures, return_when=FIRST_COMPLETED)
        return bool(self._pending)

    @staticmethod
    def _name_content(request: Request, futures: list[Future[str]]) -> None:
        """Make the adapters' content, and how much of each, a part of what a cached block is."""
        source = request.source
        digests = [future.result() for future in futures]
        source.adapters = tuple(
            replace(use, digest=digest)
            for use, digest in zip(source.adapters, digests, strict=False)
        )
        blend = tuple((use.digest, use.scale) for use in source.adapters)
        request.table.extra = (source.cache_salt, blend)


def _is_there(future: Future[str]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
