"""The promises of platforms: L1 to L3.

Knows facts that any machine has. Does not know which machine it is.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from octavo.interfaces.platform import Platform
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from octavo.testing.subjects import Subject

promises = Promises("platform", Platform)


@promises.keeps("L1")
def asking_changes_nothing(subject: Subject) -> None:
    """Neither affinity, nor threads, nor the environment."""
    platform: Platform = subject.build()
    before = _state()
    for _ in range(2):
        platform.why_not(), platform.num_threads(), platform.available_bytes(), platform.describe()
    if _state() != before:
        raise PromiseBroken("asking changed affinity, threads or the environment")


def _state() -> tuple[object, ...]:
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    return affinity, threading.active_count(), dict(os.environ)


@promises.keeps("L2")
def numbers_are_those_of_a_machine(subject: Subject) -> None:
    """At least one thread, no more than there are processors, and some memory."""
    platform: Platform = subject.build()
    num_threads, most = platform.num_threads(), os.cpu_count() or 1
    if not 1 <= num_threads <= most:
        raise PromiseBroken(f"num_threads is {num_threads}, of {most} processors")
    if not 0 < platform.available_bytes() < 1 << 60:
        raise PromiseBroken(f"available_bytes is {platform.available_bytes()}")


@promises.keeps("L3")
def facts_are_text(subject: Subject) -> None:
    """And reasons as well."""
    platform: Platform = subject.build()
    facts = platform.describe()
    wrong = {key: value for key, value in facts.items() if str(value) != value or not value}
    if not facts or wrong:
        raise PromiseBroken(f"describe() gives {wrong or 'nothing'}")
    if not all(str(one) == one for one in platform.why_not()):
        raise PromiseBroken(f"why_not gives {platform.why_not()}")


class PlatformSuite(Suite, promises=promises):
    """The tests of a platform."""
