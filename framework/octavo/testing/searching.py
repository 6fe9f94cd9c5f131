"""Looks for the smallest case that breaks a promise, and tells it as a story.

A case is run by a function `run(case, focus)`. It makes a `Story` of what it does and tells what
it sees by number: the violation of the number in focus is the counter-example, that of another
number ends the case in silence, as another invariant tells of it.

Knows hypothesis. Does not know components.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Flaky, HypothesisException

from octavo.testing.invariants import PromiseBroken, where_raised

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from octavo.testing.subjects import Subject

#: in `survey`: what broke was no promise in particular, but the component itself
_ANY = "*"
_SHOWN_STEPS = 40


class _EndedElsewhere(Exception):  # noqa: N818 - it ends a case, and is no error
    """Another promise than the one in focus is broken: this case can tell no more."""


class _Enough(Exception):  # noqa: N818 - as above
    """Some promise is broken, and nothing else is asked."""


class Story:
    """What a case did so far, and whether what it saw is as promised."""

    def __init__(self, focus: str | None = None) -> None:
        self.focus = focus
        self.broken: dict[str, str] = {}
        self._lines: list[str] = []

    def tell(self, line: str) -> None:
        """Add a step."""
        self._lines.append(line)

    def tell_again(self, line: str) -> None:
        """Add a step that may come many times on end: these are one line."""
        if self._lines and self._lines[-1].split(" x")[0] == line:
            count = int(self._lines[-1].partition(" x")[2] or 1) + 1
            self._lines[-1] = f"{line} x{count}"
        else:
            self._lines.append(line)

    def see(self, number: str, is_kept: object, message: str | Callable[[], str]) -> None:
        """Note whether a promise is kept. What breaks one ends the case.

        With no number in focus, all that break are noted in `broken`.
        """
        if not is_kept:
            self.fail(number, message if isinstance(message, str) else message())

    def fail(self, number: str, message: str) -> NoReturn:
        """Note that a promise is broken, which ends the case."""
        text = self.text(message)
        if self.focus == number:
            raise PromiseBroken(text)
        self.broken.setdefault(number, text)
        raise _EndedElsewhere

    def text(self, message: str) -> str:
        """Return a message with the steps that led to it."""
        first = max(0, len(self._lines) - _SHOWN_STEPS)
        steps = [f"  {i}. {line}" for i, line in enumerate(self._lines[first:], first + 1)]
        skipped = [f"  ... {first} steps before"] if first else []
        return "\n".join([message, *(["after"] if steps else []), *skipped, *steps])

    def play(self, act: Callable[[], None]) -> None:
        """Run a case; what the component raises breaks every promise."""
        try:
            act()
        except _EndedElsewhere:
            return
        except (PromiseBroken, HypothesisException):
            raise
        except Exception as error:
            text = self.text(f"it raised {where_raised(error)}")
            if self.focus is None:
                self.broken.setdefault(_ANY, text)
                return
            raise PromiseBroken(text) from error


def for_all(
    subject: Subject, cases: SearchStrategy[Any], body: Callable[[Any], None], examples: int
) -> None:
    """Call `body` with many cases, more by the subject's effort. Raises what the smallest raised.

    Repeatable with the effort 1: the same cases each time, so that a test never flickers.
    """
    is_repeatable = subject.effort <= 1
    options = settings(
        max_examples=max(1, round(examples * subject.effort)),
        deadline=None,
        database=None,
        derandomize=is_repeatable,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, *([Phase.shrink] if subject.aim == "smallest" else [])],
    )

    def case_by_case(case: Any) -> None:
        body(case)

    try:
        options(given(cases)(case_by_case))()
    except PromiseBroken as error:
        raise PromiseBroken(str(error)) from None  # without hypothesis's frames and notes
    except Flaky as error:  # it broke, and did not when the same case was tried again
        for one in getattr(error, "exceptions", ()):
            if isinstance(one, PromiseBroken):
                raise PromiseBroken(f"{one}\nnot each time: the same case also passed") from None
        raise


def keep(
    subject: Subject,
    number: str,
    cases: SearchStrategy[Any],
    run: Callable[[Any, Story], None],
    examples: int = 60,
) -> None:
    """Try a promise that is one of several of a run. Raises PromiseBroken with the smallest case.

    All numbers of a `run` are tried together, once for each subject; only what is broken is then
    looked for again, to make it small.
    """

    def focused(case: Any) -> None:
        story = Story(number)
        story.play(lambda: run(case, story))

    if subject.aim == "first":
        for_all(subject, cases, focused, examples)
        return
    broken = survey(subject, cases, run, examples)
    if number not in broken and _ANY not in broken:
        return
    if subject.aim == "smallest":
        for_all(subject, cases, focused, examples)
    raise PromiseBroken(broken.get(number) or broken[_ANY])  # it was seen, and not seen again


def survey(
    subject: Subject,
    cases: SearchStrategy[Any],
    run: Callable[[Any, Story], None],
    examples: int,
) -> dict[str, str]:
    """Return what was seen broken in many cases, by number, with the first message of each.

    Where the subject's aim is any promise, the first case that breaks one ends it.
    """
    memory = subject.memory
    if run not in memory:
        broken: dict[str, str] = {}

        def unfocused(case: Any) -> None:
            story = Story()
            story.play(lambda: run(case, story))
            for number, message in story.broken.items():
                broken.setdefault(number, message)
            if broken and subject.aim == "any":
                raise _Enough

        with suppress(_Enough):
            for_all(subject, cases, unfocused, examples)
        memory[run] = broken
    found: dict[str, str] = memory[run]
    return found
