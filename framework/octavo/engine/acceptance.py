"""How often drafts are right: averages that forget, of each request and of all together.

Knows counts. Does not know tokens, proposers or costs.
"""

from __future__ import annotations

from typing import Final

#: the first draft's chance, before anything is known
_FIRST_GUESS: Final = 0.5
#: what is believed beforehand counts as much as so many observations
_WEIGHT_OF_ALL: Final = 8.0
_WEIGHT_OF_ONE: Final = 2.0
#: what an observation still counts after the next one
_MEMORY_OF_ALL: Final = 0.98
_MEMORY_OF_ONE: Final = 0.9


class Acceptance:
    """The chance of the first, the second, ... draft to be right, given those before it are.

    `of_all` is what is believed of a request before it has shown anything; it learns from each.
    Without it, a place that was never tried is believed to be as good as the one before.
    """

    __slots__ = ("_of_all", "_right", "_tried")

    def __init__(self, num_places: int, of_all: Acceptance | None = None) -> None:
        self._of_all = of_all
        self._right = [0.0] * num_places
        self._tried = [0.0] * num_places

    def rates(self) -> list[float]:
        """Return the estimates by place, all above 0 and below 1."""
        pairs = zip(self._right, self._tried, strict=True)
        if self._of_all is not None:
            weight = _WEIGHT_OF_ONE
            return [
                (right + weight * believed) / (tried + weight)
                for (right, tried), believed in zip(pairs, self._of_all.rates(), strict=True)
            ]
        rates, believed = [], _FIRST_GUESS
        for right, tried in pairs:
            believed = (right + _WEIGHT_OF_ALL * believed) / (tried + _WEIGHT_OF_ALL)
            rates.append(believed)
        return rates

    def observe(self, num_drafts: int, num_accepted: int) -> None:
        """Count one verification: those that were right, and the first that was not."""
        memory = _MEMORY_OF_ALL if self._of_all is None else _MEMORY_OF_ONE
        for place in range(min(num_drafts, num_accepted + 1)):
            self._right[place] = memory * self._right[place] + (place < num_accepted)
            self._tried[place] = memory * self._tried[place] + 1
        if self._of_all is not None:
            self._of_all.observe(num_drafts, num_accepted)
