"""The identity of a full block: its tokens, everything before it, and what else must match.

A key refers to its parent, so that equality of keys is equality of whole prefixes, whatever the
hash says. Knows token ids. Does not know block ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class BlockKey:
    """One block of a chain of blocks. `extra` (salt, media, adapter) counts for the whole chain."""

    __slots__ = ("_hash", "extra", "parent", "tokens")

    def __init__(
        self,
        parent: BlockKey | None,
        tokens: tuple[int, ...],
        extra: Hashable,
        hasher: Callable[[object], int] = hash,
    ) -> None:
        self.parent = parent
        self.tokens = tokens
        self.extra = extra
        self._hash = hasher((parent, tokens, extra))

    def __hash__(self) -> int:
        """Return the chained hash, computed once."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Compare the whole chains; stops where they become one object (nearly always at once)."""
        if not isinstance(other, BlockKey):
            return NotImplemented
        mine: BlockKey | None = self
        yours: BlockKey | None = other
        while mine is not yours:
            if mine is None or yours is None:
                return False
            if mine._hash != yours._hash or mine.tokens != yours.tokens:
                return False
            if mine.extra != yours.extra:
                return False
            mine, yours = mine.parent, yours.parent
        return True
