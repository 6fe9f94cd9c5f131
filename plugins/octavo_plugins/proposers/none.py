"""No drafts: every step yields one token for each request. Knows nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.proposer import EngineProposer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.proposer import DraftView


class NoProposer(EngineProposer):
    """Proposes nothing."""

    @property
    def max_drafts(self) -> int:
        """Return 0."""
        return 0

    def propose(self, request: DraftView, max_tokens: int) -> Sequence[int]:
        """Return nothing."""
        del request, max_tokens
        return ()
