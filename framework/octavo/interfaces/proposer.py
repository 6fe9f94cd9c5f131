"""The proposer kind: draft tokens that the model then verifies all at once.

Verification draws the model's own token at each position, with that position's own noise, and
goes on while the drafts agree: the text is the same with any proposer, or none. A proposer only
decides how many steps it takes.

An `EngineProposer` sees token ids. An `ExecutorProposer` runs beside the model, and may have
weights and caches. Knows one request, or the rows of a batch. Does not know the schedule: how
many drafts are worth their cost is the engine's to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.config.resolved import ResolvedConfig
    from octavo.execution.buffers import StepCapacity
    from octavo.execution.cache_layout import CacheLayout
    from octavo.execution.rows import Rows
    from octavo.interfaces.architecture import Architecture
    from octavo.interfaces.attention import CacheSpec


class DraftView(Protocol):
    """What a proposer may read of a request."""

    @property
    def request_id(self) -> str:
        """Return the request's id."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Return prompt and output so far: the live list, which only grows, by committed tokens."""

    @property
    def num_prompt_tokens(self) -> int:
        """Return how many of them are prompt."""


class Proposer(ABC):
    """Proposes drafts: an `EngineProposer` or an `ExecutorProposer`.

    D1  a pure function of the request's tokens, and beside a model of its seed: same tokens, same
        drafts, whatever was rejected or written over before.
    D2  at most `max_tokens` drafts, which are ids of the vocabulary; none is a good answer.
    D3  `forget` leaves nothing behind of a request or row; unknown ones are ignored.
    D4  a request is not changed by being looked at, nor by a rehearsal.
    D5  the text is the same with it as without.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @property
    @abstractmethod
    def max_drafts(self) -> int:
        """Return the most drafts that are ever proposed for one request and step."""


class EngineProposer(Proposer):
    """Proposes from token ids alone."""

    @abstractmethod
    def propose(self, request: DraftView, max_tokens: int) -> Sequence[int]:
        """Return tokens that may follow `request.token_ids`."""

    def forget(self, request_id: str) -> None:
        """Drop what is kept of a request."""
        del request_id


class ExecutorProposer(Proposer):
    """Proposes beside the model, in the executor.

    Its caches use the block ids of the model's own tables, so that blocks are handed out, shared,
    preempted and rolled back with the model's.
    """

    @abstractmethod
    def load(self, config: ResolvedConfig, target: Architecture) -> None:
        """Load what it needs. Raises typed errors: another vocabulary, a missing file."""

    @abstractmethod
    def cache_specs(self) -> Sequence[CacheSpec]:
        """Return what its layers cache, in addition to the model's."""

    @abstractmethod
    def prepare(
        self, rows: Rows, capacity: StepCapacity, layout: CacheLayout, num_blocks: int
    ) -> None:
        """Take the batch's rows and allocate, once all is loaded.

        `capacity` is that of the model's steps, `layout` holds the layers of `cache_specs`, and
        `num_blocks` counts the null block.
        """

    @abstractmethod
    def propose(self, wanted: Sequence[tuple[int, int]]) -> list[Sequence[int]]:
        """Return drafts for each (batch row, most tokens) that is wanted, after its last token."""

    @abstractmethod
    def rehearse(self) -> None:
        """Do what one draft for one row takes, to be timed. No row is touched."""

    def forget(self, row: int) -> None:
        """A row has ended, or begins anew."""
        del row
