"""Which layers share block tables, and which share memory.

Layers whose tokens read equally far back form a group: they have one block table per request and
free their blocks together. All groups take their blocks from one pool of ids; as an id belongs
to one group at a time, the n-th layers of two groups may keep their blocks in the same memory
when they have the same shape. So that no group leaves much of that memory unused, the layers of
one reach are split into groups of as many as the rarest reach has.

Layers of a second model (one that drafts) use the tables of the first one's groups, and memory
of their own.

Knows what layers cache. Does not know requests, nor how a cache is laid out.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from octavo.interfaces.attention import CacheSpec, StateCache, StateSpec
from octavo.interfaces.executor import CacheGroup

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from octavo.interfaces.attention import Attention, AttentionBatch

#: each group costs every request a table, and every step some work
MAX_GROUPS: Final = 8


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The layers of a model: what each caches, its group, and the number of its memory."""

    specs: tuple[CacheSpec | StateSpec, ...]
    groups: tuple[CacheGroup, ...]
    group_of: tuple[int, ...]
    memory_of: tuple[int, ...]

    @classmethod
    def of(
        cls, specs: Sequence[CacheSpec | StateSpec], others: Sequence[CacheSpec] = ()
    ) -> CacheLayout:
        """Group layers in the order of the first of each group; one group without layers.

        `others` are the layers of a second model, which come last: those of one reach in one
        group.
        """
        layers = [*specs, *others]
        groups, group_of = _grouped(specs)
        for group_of_other in (CacheGroup(spec.reach) for spec in others):
            if group_of_other not in groups:
                groups.append(group_of_other)
            group_of.append(groups.index(group_of_other))
        memories: dict[Hashable, int] = {}
        counts: dict[Hashable, int] = {}
        memory_of = []
        for number, (spec, group) in enumerate(zip(layers, group_of, strict=True)):
            shape = number < len(specs), _shape(spec)
            place = counts[shape, group] = counts.get((shape, group), -1) + 1
            memory_of.append(memories.setdefault((shape, place), len(memories)))
        groups = groups or [CacheGroup()]
        return cls(tuple(layers), tuple(groups), tuple(group_of), tuple(memory_of))

    def part(self, start: int, stop: int) -> CacheLayout:
        """Return the layout of some layers alone, with all groups and memories still numbered."""
        layers = slice(start, stop)
        return CacheLayout(
            self.specs[layers], self.groups, self.group_of[layers], self.memory_of[layers]
        )

    def bytes_per_block(self, attention: Attention, block_size: int) -> int:
        """Return the bytes that one block takes in all memories together."""
        by_memory = dict(zip(self.memory_of, self.specs, strict=True))
        return sum(
            _state_bytes(spec)
            if isinstance(spec, StateSpec)
            else attention.bytes_per_block(spec, block_size)
            for spec in by_memory.values()
        )

    def allocate(
        self, attention: Attention, num_blocks: int, batches: Sequence[AttentionBatch]
    ) -> list[Any]:
        """Return the cache of each layer. `batches`: the layer's own, for those with a state."""
        memories: dict[int, Any] = {}
        caches = []
        for spec, memory, batch in zip(self.specs, self.memory_of, batches, strict=True):
            if isinstance(spec, StateSpec):
                if memory not in memories:
                    dtype: torch.dtype = getattr(torch, spec.dtype)
                    memories[memory] = torch.zeros(num_blocks, *spec.shape, dtype=dtype)
                caches.append(StateCache(memories[memory], batch))
                continue
            if memory not in memories:
                memories[memory] = attention.allocate(spec, num_blocks, batch.block_size)
            caches.append(memories[memory])
        return caches


def _grouped(specs: Sequence[CacheSpec | StateSpec]) -> tuple[list[CacheGroup], list[int]]:
    """Return the groups, and for each layer the number of its own."""
    most = _layers_per_group(specs)
    groups: list[CacheGroup] = []
    group_of: list[int] = []
    last: dict[int | None, tuple[int, int]] = {}  # by reach: the group being filled, its layers
    for spec in specs:
        group, count = last.get(spec.reach, (0, most))
        if count == most:
            group, count = len(groups), 0
            groups.append(CacheGroup(spec.reach))
        last[spec.reach] = group, count + 1
        group_of.append(group)
    return groups, group_of


def _layers_per_group(specs: Sequence[CacheSpec | StateSpec]) -> int:
    """Return how many layers the rarest reach has, or more where that would make many groups."""
    counts = Counter(spec.reach for spec in specs).values()
    most = min(counts, default=1)
    while sum(-(-count // most) for count in counts) > max(MAX_GROUPS, len(counts)):
        most += 1
    return most


def _shape(spec: CacheSpec | StateSpec) -> Hashable:
    if isinstance(spec, StateSpec):
        return ("state", spec.shape, spec.dtype)
    return ("kv", spec.num_kv_heads, spec.head_dim, spec.dtype)


def _state_bytes(spec: StateSpec) -> int:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return math.prod(spec.shape) * dtype.itemsize
