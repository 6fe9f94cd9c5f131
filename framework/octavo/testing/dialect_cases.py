"""A dialect in front of a scripted model, and the calls that it is tried with.

Knows the server's shell, and calls as samples describe them. Does not know any dialect.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.config.schema import ServerConfig
from octavo.serving.app import build_app
from octavo.serving.context import ServingContext
from octavo.serving.metrics import ServerMetrics
from octavo.testing.http_calls import Answer, Exchange
from octavo.testing.invariants import PromiseBroken, SampleNeededError
from octavo.testing.quiet import without_log
from octavo.testing.samples import sample_of
from octavo.testing.scripted_client import Script, ScriptedClient, scripted_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    from octavo.interfaces.dialect import Dialect
    from octavo.serving.app import Shell
    from octavo.serving.models import ServedModel
    from octavo.testing.subjects import Subject

T = TypeVar("T")

WHAT = (
    "calls that succeed, as a list of {path, body, stream}; `stream` is what a body is changed by"
)
#: far beyond what any call takes: a machine that was stopped meanwhile breaks no promise
_HANGS_S = 60.0
_TURNS, _TURN_S = 400, 0.005
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class DialectCall:
    """A call that succeeds. Without a body it is a GET.

    `stream` is what has to be changed in the body so that the answer is streamed; None where it
    cannot be.
    """

    path: str
    body: Mapping[str, Any] | None = None
    stream: Mapping[str, Any] | None = None
    method: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"

    @property
    def verb(self) -> str:
        """Return the method."""
        return self.method or ("GET" if self.body is None else "POST")

    def with_body(self, changes: Mapping[str, Any]) -> DialectCall:
        """Return the call with a changed body."""
        return DialectCall(self.path, {**(self.body or {}), **changes}, self.stream, self.method)


@dataclass(slots=True)
class Served:
    """A dialect that is served, and the model behind it."""

    shell: Shell
    model: ServedModel
    client: ScriptedClient

    def exchange(
        self,
        call: DialectCall,
        raw: bytes | None = None,
        leaves: Callable[[Answer], bool] | None = None,
    ) -> Exchange:
        """Return an exchange that is to be run; `raw` is another body."""
        body = b"" if call.body is None else json.dumps(dict(call.body)).encode()
        body = body if raw is None else raw
        return Exchange(self.shell, call.verb, call.path, body, leaves=leaves)

    async def ask(self, call: DialectCall, raw: bytes | None = None) -> Answer:
        """Make a call, and return the answer. Raises PromiseBroken for an error in the server."""
        answer = await self.exchange(call, raw).run()
        if not answer.status:
            raise PromiseBroken(f"{call} is not answered")
        return answer


def context_of(model: ServedModel, settings: ServerConfig) -> ServingContext:
    """Return what a dialect's handlers work with."""
    metrics = ServerMetrics([model.metrics])
    return ServingContext(models=(model,), metrics=metrics, settings=settings)


@asynccontextmanager
async def served(
    subject: Subject, script: Script | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """Serve a fresh dialect, as long as the block lasts."""
    config = ServerConfig(**settings)
    model = await scripted_model(config, script or Script())
    dialect: Dialect = subject.build()
    client = model.client
    if not isinstance(client, ScriptedClient):
        raise TypeError(f"{client!r} follows no script")
    try:
        yield Served(build_app(context_of(model, config), [dialect]), model, client)
    finally:
        await model.close()


def run(check: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a check in an event loop of its own, without its log.

    Raises PromiseBroken when it never ends.
    """
    try:
        with without_log():  # most of what is tried here is worth an error in it
            return asyncio.run(asyncio.wait_for(check(), _HANGS_S))
    except TimeoutError as error:
        raise PromiseBroken(f"it hangs: nothing came within {_HANGS_S:g} s") from error


async def until(condition: Callable[[], bool], turns: int = _TURNS) -> bool:
    """Let others run until something holds, for some hundred turns. Return whether it does."""
    for _ in range(turns):
        if condition():
            return True
        await asyncio.sleep(_TURN_S)
    return condition()


def calls_of(subject: Subject) -> list[DialectCall]:
    """Return the sample's calls, or those of all routes that take nothing.

    Raises SampleNeededError for a dialect with other routes that has no sample.
    """
    if subject.sample is not None:
        return [
            one if isinstance(one, DialectCall) else DialectCall(**one)
            for one in sample_of(subject, WHAT)
        ]
    routes = run(lambda: _routes(subject))
    names = [path for path, _ in routes]
    plain = [DialectCall(path) for path, methods in routes if "GET" in methods and "{" not in path]
    if any("POST" in methods for _, methods in routes) or not plain:
        raise SampleNeededError(
            f"dialect '{subject.name}' cannot be tried without a sample: {WHAT}",
            f"its routes: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}",
        )
    return plain


def variants_of(subject: Subject) -> Iterator[DialectCall]:
    """Yield all calls, and those that can be streamed a second time, streamed."""
    for call in calls_of(subject):
        yield call
        if call.stream is not None:
            yield call.with_body(call.stream)


def posts_of(subject: Subject) -> list[DialectCall]:
    """Return the calls that have a body."""
    return [call for call in calls_of(subject) if call.body is not None]


async def _routes(subject: Subject) -> list[tuple[str, set[str]]]:
    """Return the paths and methods of the dialect's own routes: the shell has some, too."""
    async with served(subject) as at:
        shells = build_app(context_of(at.model, ServerConfig()), ()).litestar
        others = {one.path for one in shells.routes}
        return [
            (one.path, set(getattr(one, "methods", ())))
            for one in at.shell.litestar.routes
            if one.path not in others
        ]
