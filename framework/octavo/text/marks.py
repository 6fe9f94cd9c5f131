"""Looks for any of several texts in one that comes in pieces.

Knows texts. Does not know what marks mean.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Found(NamedTuple):
    """The first mark of a text: what stands before it ends at `start`.

    Where none is there yet, `mark` is "" and from `start` on there may be the beginning of one.
    """

    start: int
    mark: str


class Marks:
    """Texts that are looked for all at once; the first to begin is found.

    Raises ValueError for none, an empty one, or one that begins another: which of the two it is
    could not be told before what follows has come.
    """

    def __init__(self, *marks: str) -> None:
        if not marks or not all(marks):
            raise ValueError(f"marks must be texts, and not empty: {marks}")
        pairs = ((one, other) for one in marks for other in marks if one != other)
        if clash := next((pair for pair in pairs if pair[1].startswith(pair[0])), None):
            raise ValueError(f"the mark {clash[0]!r} begins {clash[1]!r}")
        self._pattern = re.compile("|".join(map(re.escape, marks)))
        self._begun = frozenset(one[:end] for one in marks for end in range(1, len(one)))
        self._max_begun = max(map(len, marks)) - 1

    def find(self, text: str, at: int) -> Found:
        """Return the first mark from `at` on that is certain, whatever comes next."""
        held = self._start_of_begun(text, at)
        match = self._pattern.search(text, at)
        if match is None or held < match.start():
            return Found(held, "")
        return Found(match.start(), match.group())

    def _start_of_begun(self, text: str, at: int) -> int:
        """Return where the longest end of the text that may become a mark begins."""
        for start in range(max(at, len(text) - self._max_begun), len(text)):
            if text[start:] in self._begun:
                return start
        return len(text)
