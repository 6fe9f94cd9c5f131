"""A test class for each stock component, from the catalogue.

What is new in the catalogue is tested without a word; what needs a sample, or cannot be tried,
has to be given as such, and what is given has to be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import octavo.testing
from octavo.testing.kits import KITS
from octavo.testing.subjects import stock_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: of the number of cases that others get: our own tests run often, and `--full` tries them all
QUICK = 0.25


class Given(NamedTuple):
    """How one component is tried; `name` tells apart several ways, `why_not` says it is not."""

    options: Mapping[str, Any] = {}
    sample: Any = None
    name: str = ""
    is_full: bool = False
    why_not: str = ""


def suites() -> dict[str, type[Any]]:
    """Return the suite of each kind."""
    every = [getattr(octavo.testing, name) for name in octavo.testing.__all__]
    return {suite.promises.kind: suite for suite in every}


def stock_suites(given: Mapping[tuple[str, str], Sequence[Given]]) -> Iterator[type[Any]]:
    """Yield a class for each stock component and each way to try it."""
    for kind, suite in suites().items():
        for entry in stock_catalogue().all(kind):
            for one in given.get((kind, entry.name), (Given(),)):
                words = [*kind.split("-"), *entry.name.split("-"), one.name]
                name = "Test" + "".join(word[:1].upper() + word[1:] for word in words)
                marks = [pytest.mark.full] if one.is_full else []
                if one.why_not:
                    marks.append(pytest.mark.skip(reason=one.why_not))
                body = {"component": entry.name, "options": one.options, "pytestmark": marks}
                if one.sample is not None:
                    sample = one.sample
                    body["sample"] = staticmethod(sample) if callable(sample) else sample
                yield type(name, (suite,), body)


def strangers(given: Mapping[tuple[str, str], Sequence[Given]]) -> list[tuple[str, str]]:
    """Return what is given and is not there, and kinds whose kit has no suite."""
    there = {(kind, one.name) for kind in KITS for one in stock_catalogue().all(kind)}
    missing = [(kind, "no suite") for kind in KITS if kind not in suites()]
    return sorted(set(given) - there) + missing


def effort_here(config: pytest.Config) -> float:
    """Return the effort that was asked for, less of it where slow tests are left out."""
    effort: float = config.getoption("--octavo-effort")
    is_quick = "not full" in config.getoption("markexpr")
    return effort * QUICK if is_quick and effort <= 1 else effort
