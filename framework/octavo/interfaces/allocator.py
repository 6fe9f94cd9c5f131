"""The allocator kind: where KV lives and what is shared.

Knows block ids and token ids. Does not know tensors, requests or policies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.interfaces.cache_demand import CacheDemand
from octavo.interfaces.executor import CacheGroup

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from octavo.interfaces.eviction import Eviction
    from octavo.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorContext:
    """What an allocator is built with. `num_blocks` counts block 0, the null block.

    `groups`: each request has one table of blocks for each, all from one pool of ids.
    `max_tokens_ahead`: as in `CacheDemand`.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    enable_prefix_caching: bool
    eviction: Eviction
    groups: tuple[CacheGroup, ...] = (CacheGroup(),)
    max_tokens_ahead: int | None = None

    @property
    def demand(self) -> CacheDemand:
        """Return how many blocks requests hold."""
        return CacheDemand(self.groups, self.block_size, self.max_tokens_ahead)


@dataclass(slots=True)
class BlockTable:
    """The blocks of one request, by group and in order of position, and how far they are hashed.

    All groups have equally many entries; 0 stands where a group's block is out of reach and was
    given back. `extra` is what must be equal beside the tokens for a block to be shared: salt,
    media, adapter. `keys` belongs to the allocator; `num_trimmed` says how many leading entries
    of each group are 0. `params` are the request's, for eviction orders.
    """

    groups: list[list[int]]
    extra: Hashable = None
    num_hashed_blocks: int = 0
    keys: list[Any] = field(default_factory=list)
    num_trimmed: list[int] = field(default_factory=list)
    params: SamplingParams | None = None

    @classmethod
    def of(cls, num_groups: int = 1, extra: Hashable = None) -> BlockTable:
        """Return an empty table."""
        return cls([[] for _ in range(num_groups)], extra, num_trimmed=[0] * num_groups)

    @property
    def block_ids(self) -> list[int]:
        """Return the blocks of the first group: the only one of most models."""
        return self.groups[0]

    @property
    def num_blocks(self) -> int:
        """Return how many entries each group has."""
        return len(self.groups[0])


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """A1: `free + used + cached == total` (the null block is counted nowhere)."""

    free: int
    used: int
    cached: int
    total: int


class Allocator(ABC):
    """Hands out KV blocks.

    A1  free + used + cached (hashed and unreferenced) = total after every operation.
    A2  a failed allocation changes nothing.
    A3  reference count = owners.
    A4  only full blocks are shared, and a hit implies equal tokens and equal `extra`, even
        under a forced hash collision.
    A5  only unreferenced blocks are evicted, and after `reset_cache` nothing of before is hit.
    A6  all freed means all free (cached blocks count as free for allocation).
    A7  a block is hashed only when all its tokens are committed; rolled-back tokens leave no
        trace.
    A8  a hit leaves at least one token to compute.
    A9  with several groups a hit is the longest prefix that every group can go on from: each has
        all blocks within its reach.
    A10  `can_allocate` says what `allocate` would do, and `can_admit` whether there is room for
        what is held at once; asking, and `match`, change no block.
    A11  block 0, the null block, is never handed out.
    A12  a request of `capacity_tokens` tokens runs through an empty cache, step by step.
    A13  `trim` gives back what no later position can read, and nothing within reach.
    A14  a request's blocks hold what it wrote, whoever else comes, goes or shares.
    A15  what a table's blocks have room for is always there, and one that shares prefixes holds no
        block beyond the tokens that it was asked to hold.
    A16  one that shares prefixes tells the order of eviction of every block that is cached, hit,
        or left by its last owner, and evicts what it gives away.

    An allocator that shares says so: it offers `prefix-caching`, and one that does not never hits.
    One that serves models with several groups offers `cache-groups`; others refuse such models
    with UnsupportedError.
    """

    def __init__(self, options: Any, context: AllocatorContext) -> None:
        self.options = options
        self.context = context

    @abstractmethod
    def match(self, table: BlockTable, token_ids: Sequence[int]) -> int:
        """Return how many leading tokens of `token_ids` are cached (a multiple of block size).

        Changes no block: the hit is taken by the next `allocate` of the same table. The keys of
        the matched blocks are left in `table.keys`.
        """

    @abstractmethod
    def allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Make room in `table` for `num_tokens` tokens in all; False (nothing changed) if full.

        `num_hit_tokens`, for a table that is still empty, is what `match` returned; a table that
        has blocks takes no hit.
        """

    @abstractmethod
    def can_allocate(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Return whether `allocate` with the same arguments would succeed."""

    def can_admit(self, table: BlockTable, num_tokens: int, *, num_hit_tokens: int = 0) -> bool:
        """Return whether there is room for a request of so many known tokens, run step by step.

        That may take fewer blocks than `allocate` needs at once: some are given back meanwhile.
        """
        return self.can_allocate(table, num_tokens, num_hit_tokens=num_hit_tokens)

    @abstractmethod
    def commit(self, table: BlockTable, token_ids: Sequence[int], num_tokens: int) -> None:
        """Hash the blocks that are full of the first `num_tokens` (committed) of `token_ids`."""

    def trim(self, table: BlockTable, num_tokens: int) -> None:
        """Give back the blocks that no position from `num_tokens` on can read."""
        del table, num_tokens

    @abstractmethod
    def truncate(self, table: BlockTable, num_tokens: int) -> None:
        """Give back the blocks beyond `num_tokens` (rolled-back drafts)."""

    @abstractmethod
    def free(self, table: BlockTable) -> None:
        """Give back all blocks of `table`; it is empty afterwards. Twice is fine."""

    @abstractmethod
    def reset_cache(self) -> bool:
        """Forget all cached blocks; False when some are still in use (those stay, with no name)."""

    @abstractmethod
    def counts(self) -> BlockCounts:
        """Return the block counts."""

    @property
    @abstractmethod
    def capacity_tokens(self) -> int:
        """Return how many tokens one request could hold at most."""
