"""H5, of dialects: what a client is told when something is wrong with a request or the engine.

Knows answers and how errors have to look. Does not know any dialect.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from octavo.testing.dialect_cases import calls_of, posts_of, run, served, variants_of
from octavo.testing.invariants import PromiseBroken
from octavo.testing.scripted_client import Script

if TYPE_CHECKING:
    from octavo.testing.dialect_cases import DialectCall
    from octavo.testing.http_calls import Answer
    from octavo.testing.subjects import Subject

_BAD_BODIES = (
    b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000,
    b'{"model": 1e999}', b'{"\\ud800": "\\ud800"}',
)  # fmt: skip


def bodies_that_are_none_are_refused(subject: Subject) -> str | None:
    """Cut short, nested without end, of another type or encoding: with an error, never a crash."""
    calls, told = posts_of(subject), []

    async def body() -> None:
        async with served(subject) as at:
            for call in calls:
                for raw in _BAD_BODIES:
                    what = f"{call} with the body {raw[:20]!r}"
                    answer = await at.ask(call, raw)
                    if not answer.is_refusal:
                        raise PromiseBroken(f"{what} is answered {answer.status}")
                    told.append(json.dumps(answer.error(what)))

    run(body)
    return told[0] if told else "no call has a body"


def its_errors_have_the_shape_of_the_shells(subject: Subject) -> str:
    """The shell's own (here of a missing key) are written in one shape with the dialect's."""
    calls, told = calls_of(subject), []

    async def body() -> None:
        async with served(subject, api_key=("secret",)) as guarded, served(subject) as at:
            for call in calls:
                answer = await guarded.ask(call)
                if not answer.is_error:
                    continue
                shells = answer.error(f"{call} without a key")
                told.append(json.dumps(shells))
                if call.body is not None:
                    own = (await at.ask(call, b"{")).error(f"{call} with half a body")
                    if _shape(own) != _shape(shells):
                        raise PromiseBroken(f"{call}: its errors are {own}, the shell's {shells}")

    run(body)
    return told[0] if told else "all its paths are open"


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items() if isinstance(one, dict)} | {
            key: None for key, one in value.items() if not isinstance(one, dict)
        }
    return None


def failures_are_told_as_errors(subject: Subject) -> str | None:
    """When the engine gives up on a request at its first token or in the midst, or is dead."""
    calls, told = list(variants_of(subject)), []

    async def body() -> None:
        for script in (Script(fails_at=0), Script(fails_at=3), Script(is_dead=True)):
            async with served(subject, script) as at:
                for call in calls:
                    num_added = len(at.client.added)
                    answer = await at.ask(call)
                    if len(at.client.added) == num_added and not script.is_dead:
                        continue  # it needs no engine
                    if not answer.is_error and not _tells_of_error(answer, call, script):
                        continue
                    told.append(answer.body.decode())
                    if answer.is_error:
                        answer.error(f"{call} of {script}")

    run(body)
    return told[-1] if told else "nothing that it answers needs the engine"


def _tells_of_error(answer: Answer, call: DialectCall, script: Script) -> bool:
    """Return whether a stream tells of the error. Raises PromiseBroken where it must, and not."""
    what = f"{call}, of which the engine gives up after {script.fails_at} tokens"
    if script.is_dead:
        return False  # it was answered without the engine
    if not any("NaN" in json.dumps(event) for event in answer.events(what)):
        raise PromiseBroken(f"{what}: no event tells of it: {answer.body[-200:]!r}")
    return True
