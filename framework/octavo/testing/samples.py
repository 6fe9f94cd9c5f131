"""What a kind needs beside its component, given by a suite's `sample` or by `--sample`.

Knows paths and mappings. Does not know what they are for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.testing.invariants import SampleNeededError

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.testing.subjects import Subject


def sample_of(subject: Subject, what: str) -> Any:
    """Return the sample; one that is a function is called once, without arguments.

    Raises SampleNeededError when there is none; `what` says what it is.
    """
    if subject.sample is None:
        raise SampleNeededError(
            f"{subject.kind} '{subject.name}' cannot be tried without a sample: {what}",
            "in a suite: sample = ...; with octavo plugins check: --sample ...",
        )
    if callable(subject.sample):
        make: Callable[[], Any] = subject.sample
        if make not in subject.memory:
            subject.memory[make] = make()
        return subject.memory[make]
    return subject.sample


def path_of_sample(subject: Subject, what: str) -> Path:
    """Return the sample as a path that exists. Raises SampleNeededError."""
    path = Path(str(sample_of(subject, what)))
    if not path.exists():
        raise SampleNeededError(
            f"the sample of {subject.kind} '{subject.name}' is not there: {path}"
        )
    return path
