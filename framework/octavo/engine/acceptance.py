"""How often a request's drafts are right: an average that forgets.

Knows counts. Does not know tokens, proposers or costs.
"""

from __future__ import annotations

from typing import Final

#: what is believed of a request before it has shown anything: so many tried, so many right
_PRIOR_TRIED: Final = 2.0
_PRIOR_RIGHT: Final = 1.0
#: what an observation still counts after the next one
_MEMORY: Final = 0.9


class Acceptance:
    """The chance that a draft is right, given that those before it are."""

    __slots__ = ("_right", "_tried")

    def __init__(self) -> None:
        self._right = _PRIOR_RIGHT
        self._tried = _PRIOR_TRIED

    @property
    def rate(self) -> float:
        """Return the estimate, above 0 and below 1."""
        return self._right / self._tried

    def observe(self, num_drafts: int, num_accepted: int) -> None:
        """Count one verification: those that were right, and the first that was not."""
        if num_drafts == 0:
            return
        num_tried = min(num_drafts, num_accepted + 1)
        self._right = _MEMORY * (self._right - _PRIOR_RIGHT) + num_accepted + _PRIOR_RIGHT
        self._tried = _MEMORY * (self._tried - _PRIOR_TRIED) + num_tried + _PRIOR_TRIED
