"""Notice a text that goes round in circles: a pattern of tokens again and again at its end.

Knows token ids. Does not know text, requests, or what becomes of a text that does so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.repetition import RepetitionDetectionParams


class RepetitionChecker:
    """Follows the tokens of one output.

    For each size of a pattern that the text may be made of at its end, it knows for how many
    tokens that has been so: as long as each token equals the one so many places before it. So the
    work for a token is in proportion to how often it stood in the last `max_pattern_size` ones.
    """

    def __init__(self, params: RepetitionDetectionParams) -> None:
        self._max_size = params.max_pattern_size
        self._min_size = max(1, params.min_pattern_size)
        self._num_more = params.min_count - 1
        self._num_tokens = 0
        self._places: dict[int, deque[int]] = {}  # by token, the last ones first
        self._runs: dict[int, int] = {}  # by size of the pattern

    def push(self, token_id: int) -> bool:
        """Take the next token. Returns whether a pattern has been repeated often enough."""
        place, before = self._num_tokens, self._runs
        self._num_tokens += 1
        places = self._places.setdefault(token_id, deque())
        while places and place - places[-1] > self._max_size:
            places.pop()
        sizes = [place - one for one in places]
        self._runs = {size: before.get(size, 0) + 1 for size in sizes if size >= self._min_size}
        places.appendleft(place)
        return any(run >= size * self._num_more for size, run in self._runs.items())
