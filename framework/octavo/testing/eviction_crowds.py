"""Many blocks at once for an eviction order: of every number, released, hit and taken by turns.

Knows the interface. Does not know allocators.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from octavo.interfaces.eviction import Eviction
    from octavo.testing.subjects import Subject

#: how many blocks there are, and the highest number that one may have
CROWDS = ((60, 64), (300, 400), (1500, 1500), (500, 1_000_000))


def popped_of_crowd(subject: Subject, number: str, size: int, highest: int) -> list[int]:
    """Return what is popped of so many blocks. Raises PromiseBroken where `number` is broken.

    Blocks are cached, released, hit, released again and taken; the same each time.
    """
    crowd = _Crowd(subject.build(), number)
    dice = random.Random(size)  # noqa: S311 - a seed, so that it is the same each time
    blocks = dice.sample(range(1, highest + 1), size)
    for block in blocks:
        crowd.cache(block)
        if len(crowd.there) > size // 2 and dice.random() < 0.2:  # noqa: PLR2004
            crowd.pop()
        if dice.random() < 0.2:  # noqa: PLR2004
            crowd.hit(dice.choice(sorted(crowd.there)))
    for block in blocks:
        if block in crowd.there and dice.random() < 0.5:  # noqa: PLR2004
            crowd.hit(block)
    for block in dice.sample(blocks, size):
        if block not in crowd.there:
            crowd.release(block)
    while crowd.there:
        crowd.pop()
    return crowd.popped


class _Crowd:
    """An order beside the set of its candidates."""

    def __init__(self, eviction: Eviction, number: str) -> None:
        self.eviction, self.number = eviction, number
        self.there: set[int] = set()
        self.popped: list[int] = []

    def cache(self, block: int) -> None:
        """Fill a block, and release it."""
        self.eviction.now_s += 0.1
        self.eviction.on_cached(block, f"content {block % 200}", None)
        self.release(block)

    def release(self, block: int) -> None:
        """Make a block a candidate."""
        self.eviction.add(block)
        self.there.add(block)
        self._count(f"add({block})")

    def hit(self, block: int) -> None:
        """Find a candidate again: it is in use."""
        self.eviction.remove(block)
        self.eviction.on_hit(block, None)
        self.there.discard(block)
        self._count(f"remove({block})")

    def pop(self) -> None:
        """Take the next candidate."""
        try:
            block = self.eviction.pop()
        except IndexError:
            block = 0
        if block not in self.there:
            what = f"{block}, which is none of them" if block else "nothing"
            raise PromiseBroken(
                f"of {len(self.there)} candidates, {min(self.there)} among them, it popped {what}"
            )
        self.there.discard(block)
        self.popped.append(block)
        self._count("pop()")

    def _count(self, after: str) -> None:
        if self.number == "E2" and len(self.eviction) != len(self.there):
            raise PromiseBroken(
                f"after {after} its length is {len(self.eviction)}, of {len(self.there)}"
            )


def told_of_crowds(subject: Subject) -> str:
    """Return the order of some crowds as text, for E4."""
    return str([popped_of_crowd(subject, "E1", *crowd) for crowd in CROWDS[:2]])
