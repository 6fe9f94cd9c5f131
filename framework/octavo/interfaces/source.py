"""The source kind: where a model's name leads.

Knows references and local paths. Does not know file formats, weights or tokenizers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Progress(Protocol):
    """Told how far a transfer is. Called from the thread that called `resolve`."""

    def __call__(self, label: str, done_bytes: int, total_bytes: int | None) -> None:
        """Take note: `total_bytes` is None while it is unknown."""


class ModelSource(ABC):
    """One kind of place that models come from.

    F1  `claims` looks at the reference (and at most whether a local path exists), never at a
        network.
    F2  `resolve` returns a path that exists, complete and verified; a transfer that was cut off
        leaves nothing that a later call would take for complete.
    F3  two processes that resolve the same reference at once both succeed.
    """

    @abstractmethod
    def claims(self, reference: str) -> bool:
        """Return whether a reference is written the way this source reads them."""

    @abstractmethod
    def resolve(
        self, reference: str, *, revision: str | None = None, progress: Progress | None = None
    ) -> Path:
        """Return the local folder or file of a model, fetching it if need be.

        Raises `octavo.errors.ModelNotFoundError` when the reference leads nowhere.
        """

    def known_names(self) -> list[str]:
        """Return names that always work (aliases), to suggest in errors."""
        return []
