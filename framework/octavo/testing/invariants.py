"""A promise of an interface, and the function that tries to break it.

The number and the title of an invariant are read from the docstring of its interface, so that
what is promised and what is tested cannot come apart.

Knows numbers, titles and checks. Does not know any kind, pytest or hypothesis.
"""

from __future__ import annotations

import re
import textwrap
import traceback
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octavo.testing.subjects import Subject

    #: raises PromiseBroken, or returns how the component refused what it declares unsupported
    Check: TypeAlias = Callable[[Subject], str | None]

_KIT = str(Path(__file__).parent)
_SHOWN_CHARS = 400
_NUMBERED = re.compile(r"([A-Z]\d+) {2}(\S.*)")


class SampleNeededError(ConfigError):
    """The kind needs something beside the component: a path, a config, parameters."""


class PromiseBroken(AssertionError):  # noqa: N818 - the name says what happened
    """An invariant does not hold; the message is the counter-example, for people."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise of a kind, and one way to try it.

    `number` and `title` are the interface's; `name` tells apart the checks of one number.
    """

    kind: str
    number: str
    title: str
    name: str
    check: Check

    @property
    def test_name(self) -> str:
        """Return the name of its test: `test_s1_budgets_are_never_exceeded`."""
        return f"test_{self.number.lower()}_{self.name}"

    def run(self, subject: Subject) -> str | None:
        """Try it. Raises PromiseBroken, also for what the component itself raises."""
        try:
            return self.check(subject)
        except (PromiseBroken, SampleNeededError):
            raise
        except Exception as error:
            raise PromiseBroken(f"it raised {where_raised(error)}") from error

    def __str__(self) -> str:
        return f"{self.number} {self.name.replace('_', ' ')}"


class Promises:
    """The invariants of one kind, in the order in which they were written.

    `interface`: whose docstring numbers them. `make`: how a fresh component is built, for what
    is asked of all kinds alike.
    """

    def __init__(
        self, kind: str, interface: Any, make: Callable[[Subject], Any] | None = None
    ) -> None:
        self.kind = kind
        self.interface = interface
        self.make = make
        self.titles = titles_of(interface)
        self.invariants: list[Invariant] = []

    def keeps(self, number: str) -> Callable[[Check], Check]:
        """Decorate the check of a numbered promise. Raises KeyError for a number not promised."""

        def register(check: Check) -> Check:
            title = self.titles[number]
            self.invariants.append(Invariant(self.kind, number, title, check.__name__, check))
            return check

        return register

    def __iter__(self) -> Iterator[Invariant]:
        return iter(self.invariants)


def titles_of(interface: object) -> dict[str, str]:
    """Return the numbered promises of a docstring: `A1  title`, with its further lines joined."""
    titles: dict[str, str] = {}
    number, margin = None, 0
    for line in cleandoc(interface.__doc__ or "").splitlines():
        text = line.strip()
        found = _NUMBERED.fullmatch(text)
        if found:
            number, margin = found[1], len(line) - len(text)
            titles[number] = found[2]
        elif number and len(line) - len(text) > margin:
            titles[number] += f" {text}"
        else:
            number = None
    return {number: title.rstrip(".;") for number, title in titles.items()}


def where_raised(error: BaseException) -> str:
    """Return an error on one line, with the place outside of the kit that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith(_KIT)]
    place = f" ({Path(outside[-1].filename).name}:{outside[-1].lineno})" if outside else ""
    text = textwrap.shorten(str(error), _SHOWN_CHARS)
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
