"""The promises of dialects: H1 to H6, in front of a model whose engine is a script.

`sample`: calls that succeed, as a list of `octavo.testing.dialect_cases.DialectCall` or of mappings
with its fields:

    {"path": "/v1/completions", "body": {"prompt": "TEXT"}, "stream": {"stream": true}}

The model is called `tiny`; where a body says TEXT, another text may be put. A dialect whose routes
take nothing needs no sample.

Knows calls, answers and what becomes of requests. Does not know any dialect.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from octavo.config.schema import ServerConfig
from octavo.interfaces.dialect import Dialect
from octavo.testing import dialect_errors
from octavo.testing.clocks import opened_by
from octavo.testing.dialect_cases import (
    DialectCall,
    Served,
    context_of,
    posts_of,
    run,
    served,
    until,
    variants_of,
)
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.light_imports import require_light
from octavo.testing.scripted_client import LONG_CHARS, ByteTokenizer, Script, scripted_model
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from octavo.testing.http_calls import Answer
    from octavo.testing.subjects import Subject

promises = Promises("dialect", Dialect)

_STRANGER = "no_such_field_of_anybody"
_TEXT = "TEXT"
_WRONG: tuple[Any, ...] = ({"no": ["such"]}, [[None]], -123456.5, "no such thing", True, 10**30)


@promises.keeps("H1")
def routes_start_nothing(subject: Subject) -> None:
    """Asked twice, it gives handlers of their own, starts no thread or task, and opens no file."""

    async def body() -> None:
        settings = ServerConfig()
        model = await scripted_model(settings, Script())
        context, dialect = context_of(model, settings), subject.build()
        first = list(dialect.routes(context))  # what is imported on the way may open files
        threads, tasks = threading.active_count(), len(asyncio.all_tasks())
        with opened_by() as opened:
            second = list(dialect.routes(context))
        if opened:
            raise PromiseBroken(f"`routes` opens {opened[0]}")
        if threading.active_count() > threads or len(asyncio.all_tasks()) > tasks:
            raise PromiseBroken("`routes` starts a thread or a task")
        if {id(one) for one in first} & {id(one) for one in second}:
            raise PromiseBroken("two calls of `routes` give the same handler")
        await model.close()

    run(body)


@promises.keeps("H1")
def every_call_of_the_sample_succeeds(subject: Subject) -> None:
    """On two servers of the same dialect at once, whole and streamed."""
    calls = list(variants_of(subject))

    async def body() -> None:
        async with served(subject) as one, served(subject) as other:
            for call in calls:
                for at in (one, other):
                    await _answered(at, call)

    run(body)


async def _answered(at: Served, call: DialectCall) -> Answer:
    """Return the answer of a call. Raises PromiseBroken unless it succeeds."""
    answer = await at.ask(call)
    if answer.is_error:
        raise PromiseBroken(f"{call} of the sample is answered {answer.status}: {answer.told()}")
    if answer.is_stream:
        answer.events(str(call))
    return answer


@promises.keeps("H2")
def long_texts_are_read_in_a_thread(subject: Subject) -> None:
    """Where a body of the sample says TEXT, so that others are answered meanwhile."""
    calls = posts_of(subject)

    async def body() -> None:
        async with served(subject) as at:
            tokenizer = at.model.tokenizer
            if not isinstance(tokenizer, ByteTokenizer):
                raise TypeError(f"{tokenizer!r} does not note its threads")
            for call in calls:
                await at.ask(call.with_body(_with_text(dict(call.body or {}), "x " * LONG_CHARS)))
                if threading.get_ident() in tokenizer.threads:
                    raise PromiseBroken(f"{call} tokenises a long text in the event loop")

    run(body)


def _with_text(value: Any, text: str) -> Any:
    """Return something of JSON with another text in the place of TEXT."""
    if isinstance(value, dict):
        return {key: _with_text(one, text) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_text(one, text) for one in value]
    return text if value == _TEXT else value


@promises.keeps("H3")
def what_runs_for_a_client_that_leaves_is_aborted(subject: Subject) -> str | None:
    """While it waits for a whole answer, or in the midst of a stream, and nothing goes on."""
    calls, num_generating = list(variants_of(subject)), 0

    async def body() -> None:
        nonlocal num_generating
        for call in calls:
            async with served(subject, Script(pauses_at=2)) as at:
                exchange = at.exchange(call, leaves=lambda answer: len(answer.chunks) > 1)
                before = asyncio.all_tasks()
                task = asyncio.create_task(exchange.run())
                await until(lambda a=at, t=task: bool(a.client.added) or t.done())  # type: ignore[misc]
                await until(lambda e=exchange: bool(e.answer.chunks), turns=10)  # type: ignore[misc]
                exchange.gone.set()
                if not at.client.added:
                    continue  # it needs no engine
                num_generating += 1
                is_over = await until(task.done)
                await at.client.close()
                _require_aborted(call, at, is_over=is_over)
                if not await until(lambda b=before: asyncio.all_tasks() <= b):  # type: ignore[misc]
                    raise PromiseBroken(f"{call}: a task goes on after its client has left")

    run(body)
    return None if num_generating else "nothing that it answers needs the engine"


def _require_aborted(call: DialectCall, at: Served, *, is_over: bool) -> None:
    lost = set(at.client.added) - set(at.client.aborted)
    if lost:
        raise PromiseBroken(f"{call}: the client left, and {len(lost)} requests run on")
    if not is_over:
        raise PromiseBroken(f"{call}: the client left, and its handler does not end")


@promises.keeps("H4")
def an_unknown_field_is_refused_or_reported(subject: Subject) -> str | None:
    """Named in the answer, and refused where the server has `strict-fields`."""
    calls, told = posts_of(subject), []

    async def body() -> None:
        async with served(subject) as at, served(subject, strict_fields=True) as strict:
            for call in calls:
                changed = call.with_body({_STRANGER: 1})
                answer = await at.ask(changed)
                if _STRANGER not in answer.told():
                    raise PromiseBroken(
                        f"{call}: the unknown field {_STRANGER} is ignored silently"
                    )
                answer = await strict.ask(changed)
                if not answer.is_refusal or _STRANGER not in answer.told():
                    raise PromiseBroken(
                        f"{call}: a strict server answers an unknown field {answer.told()}"
                    )
                told.append(answer.body.decode())

    run(body)
    return told[0] if told else "no call has a body"


@promises.keeps("H4")
def every_field_is_looked_at(subject: Subject) -> None:
    """Of values that cannot all be right for it, some are refused or reported; none is a crash."""
    calls = posts_of(subject)

    async def body() -> None:
        async with served(subject) as at:
            for call in calls:
                for name in (*(call.body or {}), *(call.stream or {})):
                    answers = [await at.ask(call.with_body({name: value})) for value in _WRONG]
                    for value, answer in zip(_WRONG, answers, strict=True):
                        _require_no_crash(answer, f"{call} with {name} = {value!r}")
                    if not any(one.is_refusal or name in str(one.headers) for one in answers):
                        raise PromiseBroken(f"{call}: whatever {name} is, nothing is said of it")

    run(body)


def _require_no_crash(answer: Answer, what: str) -> None:
    if answer.is_crash:
        raise PromiseBroken(f"{what} is answered {answer.status}: {answer.told()}")
    if answer.is_refusal:
        answer.error(what)


promises.keeps("H5")(dialect_errors.bodies_that_are_none_are_refused)
promises.keeps("H5")(dialect_errors.its_errors_have_the_shape_of_the_shells)
promises.keeps("H5")(dialect_errors.failures_are_told_as_errors)


@promises.keeps("H6")
def its_target_is_light(subject: Subject) -> None:
    """Imported in a process of its own."""
    require_light(subject)


class DialectSuite(Suite, promises=promises):
    """The tests of a dialect, on calls that succeed."""
