"""The promises of model sources: F1 to R4, on a reference that the suite's sample names.

`sample`: {"good": a reference that resolves, "bad": one that this source claims and that leads
nowhere}. What needs a network is the suite's to bring: the sample of one that asks an index may be
a mirror of its own.

Knows references and paths. Does not know any source.
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelNotFoundError
from octavo.interfaces.source import ModelSource
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.samples import sample_of
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.testing.subjects import Subject

promises = Promises("source", ModelSource)

_WHAT = "{'good': a reference that resolves, 'bad': one that leads nowhere}"


def _reference(subject: Subject, which: str) -> str:
    return str(sample_of(subject, _WHAT)[which])


@contextmanager
def _no_network() -> Iterator[list[str]]:
    """Refuse to look up or connect, and yield what was tried."""
    tried: list[str] = []
    kept = socket.getaddrinfo, socket.socket.connect

    def refuse(*args: Any, **_: Any) -> Any:
        tried.append(str(args[:2]))
        raise OSError("no network here")

    socket.getaddrinfo = refuse
    socket.socket.connect = refuse  # type: ignore[method-assign]
    try:
        yield tried
    finally:
        socket.getaddrinfo, socket.socket.connect = kept  # type: ignore[method-assign]


@promises.keeps("F1")
def claiming_looks_at_the_reference_alone(subject: Subject) -> None:
    """Never at a network, and without raising, whatever the reference."""
    source: ModelSource = subject.build()
    good = _reference(subject, "good")
    with _no_network() as tried:
        if source.claims(good) is not True:
            raise PromiseBroken(f"it does not claim {good!r}, which it resolves")
        for reference in (
            "",
            " ",
            "a/b",
            "a/b:c",
            "../x",
            "https://example.org/x",
            "x" * 5000,
            "\0",
        ):
            source.claims(reference)
        for name in source.known_names():
            if not source.claims(name):
                raise PromiseBroken(f"it does not claim {name!r}, which it says it knows")
    if tried:
        raise PromiseBroken(f"claims asked a network: {tried[0]}")


@promises.keeps("F2")
def resolving_gives_a_path_that_exists(subject: Subject) -> str:
    """Twice the same; what leads nowhere raises the typed error."""
    source: ModelSource = subject.build()
    good, bad = _reference(subject, "good"), _reference(subject, "bad")
    paths = [source.resolve(good) for _ in range(2)]
    if not Path(paths[0]).exists():
        raise PromiseBroken(f"{good!r} resolves to {paths[0]!r}, which is no path that exists")
    if paths[0] != paths[1]:
        raise PromiseBroken(f"{good!r} resolves to {paths[0]}, then to {paths[1]}")
    try:
        path = source.resolve(bad)
    except ModelNotFoundError as error:
        return error.headline
    raise PromiseBroken(f"{bad!r} leads nowhere, and resolves to {path}")


@promises.keeps("F3")
def two_at_once_both_succeed(subject: Subject) -> None:
    """Of the same reference."""
    good = _reference(subject, "good")
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: subject.build().resolve(good), range(4)))
    if len(set(paths)) != 1:
        raise PromiseBroken(f"four at once resolve to {sorted(map(str, set(paths)))}")


class SourceSuite(Suite, promises=promises):
    """The tests of a source, with the references of its sample."""
