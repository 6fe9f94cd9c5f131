"""Runs the conformance kit on a component that is wrong on purpose."""

from __future__ import annotations

from contextlib import closing

from octavo.testing.every import every_invariant
from octavo.testing.invariants import PromiseBroken
from octavo.testing.kits import promises_of
from octavo.testing.subjects import subject_of


def counter_examples(kind, component, number, options=None, sample=None):
    """Return what each check of one number says of a component that breaks it, by its name."""
    promises = promises_of(kind)
    subject = subject_of(kind, component, options, sample=sample)
    subject.aim = "first"
    found = {}
    with closing(subject):
        for invariant in (*every_invariant(promises), *promises):
            if invariant.number != number:
                continue
            try:
                invariant.run(subject)
            except PromiseBroken as error:
                found[invariant.name] = str(error)
    return found


def name_of(one):
    """The id of a mutant's test, or a part of it: a class goes by its name."""
    return getattr(one, "__name__", one)


def assert_killed(kind, component, number, **others):
    """The kit finds that this component breaks the promise of this number."""
    found = counter_examples(kind, component, number, **others)
    assert found, f"{name_of(component)} survived {number}"
    for message in found.values():
        assert len(message.splitlines()[0]) > 10
