"""Turns invariants into the tests of a class, which pytest collects.

Knows classes and functions. Does not know any kind; imports no pytest (a SkipTest of unittest is
what it, too, takes for a reason to skip).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from unittest import SkipTest

from octavo.testing.every import every_invariant
from octavo.testing.subjects import Subject, subject_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.plugin.component import Component
    from octavo.testing.invariants import Invariant, Promises


class Suite:
    """The tests of one component. Subclass the suite of its kind, in a class named `Test...`:

        class TestMine(SchedulerSuite):
            component = "mine"

    `component` is a registered name, `FILE.py:Class`, a class, or a Component; `options` are its
    own. `sample` is what some kinds need beside it, as the suite of the kind says.
    """  # noqa: D415 - an example follows

    component: ClassVar[str | type[Any] | Component[Any]]
    options: ClassVar[Mapping[str, Any]] = {}
    sample: ClassVar[Any] = None
    promises: ClassVar[Promises]
    _subject: ClassVar[Subject | None] = None

    def __init_subclass__(cls, promises: Promises | None = None) -> None:
        """Give the suite of a kind its tests; a third party's class inherits them."""
        super().__init_subclass__()
        cls._subject = None  # one for each class, whose checks share what they find out
        if promises is None:
            return
        cls.promises = promises
        for invariant in (*every_invariant(promises), *promises):
            setattr(cls, invariant.test_name, _test_of(invariant))

    @classmethod
    def subject(cls) -> Subject:
        """Return what is tested. Raises the typed errors of `subject_of`."""
        if cls._subject is None:
            kind = cls.promises.kind
            cls._subject = subject_of(kind, cls.component, cls.options, sample=cls.sample)
        return cls._subject

    @classmethod
    def teardown_class(cls) -> None:
        """End what the tests share: called by pytest after the last of them."""
        if cls._subject is not None:
            cls._subject.close()
            cls._subject = None


def _test_of(invariant: Invariant) -> Callable[[Suite, float], None]:
    def test(self: Suite, octavo_effort: float) -> None:
        __tracebackhide__ = True
        subject = self.subject()
        reasons = subject.reasons_against()
        if reasons:
            raise SkipTest(f"{subject.name} cannot run here: {'; '.join(reasons)}")
        subject.effort = octavo_effort
        invariant.run(subject)

    test.__name__ = invariant.test_name
    test.__qualname__ = f"Suite.{invariant.test_name}"
    test.__doc__ = f"{invariant.number}: {invariant.title}."
    return test
