"""What attention works out once per step, for all layers: who reads which slots.

Decoding sequences (one query) are sorted by length into groups that are computed as one batch;
all others are computed one by one. Entries that pad a group point at a slot that the sequence
owns, so that nothing unowned is ever read; they are masked afterwards.

Knows lengths and block tables. Does not know queries, keys or values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# A group may hold this share of padding, or this many entries if that is more: a call costs as
# much as so many entries do.
_PADDING_SHARE: Final = 0.125
_PADDING_FREE: Final = 512
# Entries of a group (sequences x length): bounds the memory of what is gathered.
_GROUP_ENTRIES: Final = 16384


@dataclass(frozen=True, slots=True)
class RaggedBatch:
    """Sequence i has queries query_start[i] .. query_start[i + 1], the last at seq_lens[i] - 1.

    query_start: int [s + 1]; seq_lens: int [s], counting this step's tokens; block_tables: int
    [s, max_blocks]. Every sequence has at least one query and `seq_lens[i]` slots of its own.
    """

    query_start: Tensor
    seq_lens: Tensor
    block_tables: Tensor
    block_size: int


class Workspace:
    """Scratch memory by name, kept between layers and steps so that its pages stay mapped."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return uninitialised memory, shared with every other taker of the same name."""
        key = (name, dtype, device)
        size = math.prod(shape)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[key] = torch.empty(size, dtype=dtype, device=device)
        return buffer[:size].view(shape)


@dataclass(frozen=True, slots=True)
class HeadShape:
    """The heads of a layer, as the shapes of its scratch memory depend on them."""

    heads: int
    kv_heads: int
    dim: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class DecodeScratch:
    """Where the layers of one shape work on a group: rows to read, and memory to write.

    bags: the rows once per query head, and where each head's begin.
    """

    rows: Tensor  # int64 [s * kv_heads * t], of `KVCache.head_rows`, heads before time
    bags: tuple[Tensor, Tensor]  # int64 [s * heads * t], int64 [s * heads]
    keys: Tensor  # [s * kv_heads * t, d]
    keys_by_head: Tensor  # the same memory as [s * kv_heads, d, t]
    scores: Tensor  # [s * kv_heads, heads / kv_heads, t]
    scores_by_sequence: Tensor  # the same memory as [s, kv_heads, heads / kv_heads, t]


@dataclass(slots=True)
class DecodeGroup:
    """Sequences of similar length with one query each, computed as one batch.

    queries: flat query index of each, int64 [s], or a slice when they are neighbours in order.
    slots: int64 [s, t], oldest first. mask: bool [s, 1, 1, t], True where padded; None if nowhere.
    """

    queries: Tensor | slice
    slots: Tensor
    mask: Tensor | None
    _scratch: dict[HeadShape, DecodeScratch] = field(default_factory=dict)

    def scratch(self, shape: HeadShape, workspace: Workspace) -> DecodeScratch:
        """Return what the layers of this shape share, made for the first of them."""
        scratch = self._scratch.get(shape)
        if scratch is None:
            scratch = self._scratch[shape] = self._make_scratch(shape, workspace)
        return scratch

    def _make_scratch(self, shape: HeadShape, workspace: Workspace) -> DecodeScratch:
        count, length = self.slots.shape
        kv_heads, ratio = shape.kv_heads, shape.heads // shape.kv_heads
        device = self.slots.device
        heads = torch.arange(kv_heads, device=device)[:, None]
        rows = self.slots[:, None, :] * kv_heads + heads  # [s, kv_heads, t]
        bags = rows[:, :, None].expand(-1, -1, ratio, -1).reshape(-1)
        offsets = torch.arange(0, bags.numel(), length, device=device)
        keys = workspace.take("keys", (rows.numel(), shape.dim), shape.dtype, device)
        by_sequence = (count, kv_heads, ratio, length)
        scores = workspace.take("scores", by_sequence, shape.dtype, device)
        return DecodeScratch(
            rows.view(-1),
            (bags, offsets),
            keys,
            keys.view(count * kv_heads, length, shape.dim).transpose(1, 2),
            scores.view(count * kv_heads, ratio, length),
            scores,
        )


@dataclass(slots=True)
class Chunk:
    """A sequence with several queries: start .. stop of the flat queries.

    slots: int64 [t], those of positions first_key .. first_key + t; the first query stands at
    position `first_query`.
    """

    start: int
    stop: int
    first_query: int
    first_key: int
    slots: Tensor


@dataclass(slots=True)
class WindowPlan:
    """The groups and chunks of a step for layers with one window.

    `reach` bounds how many keys before its own a query of a chunk sees. `band` is the mask that
    attention cuts its tiles from, once it has built it.
    """

    groups: list[DecodeGroup]
    chunks: list[Chunk]
    reach: int
    band: Tensor | None = None


class AttentionPlan:
    """A step's plan, by window. Valid while the batch it was made of does not change."""

    def __init__(self, batch: RaggedBatch, workspace: Workspace | None = None) -> None:
        self.workspace = workspace or Workspace()
        self._device = batch.block_tables.device
        self._query_start = batch.query_start.cpu().numpy()
        self._seq_lens = batch.seq_lens.cpu().numpy()
        self._tables = batch.block_tables.cpu().numpy()
        self._block_size = batch.block_size
        self._by_window: dict[int | None, WindowPlan] = {}

    def for_window(self, window: int | None) -> WindowPlan:
        """Return groups and chunks for layers that see `window` positions (None: all)."""
        plan = self._by_window.get(window)
        if plan is None:
            plan = self._by_window[window] = self._build(window)
        return plan

    def _build(self, window: int | None) -> WindowPlan:
        counts = np.diff(self._query_start)
        decoding = np.flatnonzero(counts == 1)
        lengths = self._seq_lens[decoding]
        if window is not None:
            lengths = np.minimum(lengths, window)
        groups = [self._group(decoding[members], lengths[members]) for members in _split(lengths)]
        chunks = [self._chunk(int(i), window) for i in np.flatnonzero(counts > 1)]
        reach = max((int(self._seq_lens[i]) for i in np.flatnonzero(counts > 1)), default=0)
        return WindowPlan(groups, chunks, reach if window is None else min(reach, window - 1))

    def _group(self, sequences: NDArray[np.int64], lengths: NDArray[np.int64]) -> DecodeGroup:
        """Make a group of decoding sequences that each see their last `lengths` positions."""
        longest = int(lengths.max())
        ends = self._seq_lens[sequences]
        positions = (ends - lengths)[:, None] + np.arange(longest)  # [s, t]
        is_padded = positions >= ends[:, None]
        np.minimum(positions, ends[:, None] - 1, out=positions)
        blocks, offsets = np.divmod(positions, self._block_size)
        slots = self._tables[sequences[:, None], blocks].astype(np.int64)
        slots *= self._block_size
        slots += offsets
        mask = self._to_device(is_padded[:, None, None, :]) if is_padded.any() else None
        queries = self._query_start[sequences]
        first = int(queries[0])
        if np.array_equal(queries, np.arange(first, first + len(queries))):
            return DecodeGroup(slice(first, first + len(queries)), self._to_device(slots), mask)
        return DecodeGroup(self._to_device(queries), self._to_device(slots), mask)

    def _chunk(self, sequence: int, window: int | None) -> Chunk:
        start, stop = self._query_start[sequence : sequence + 2].tolist()
        end = int(self._seq_lens[sequence])
        first_query = end - (stop - start)
        first_key = 0 if window is None else max(0, first_query - window + 1)
        blocks, offsets = np.divmod(np.arange(first_key, end), self._block_size)
        slots = self._tables[sequence, blocks].astype(np.int64) * self._block_size + offsets
        return Chunk(start, stop, first_query, first_key, self._to_device(slots))

    def _to_device(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _split(lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split sequences into groups of similar length. Returns indices, each group in batch order.

    A decision depends on lengths alone; it changes speed, not results.
    """
    order = np.argsort(-lengths, kind="stable")
    groups: list[NDArray[np.int64]] = []
    first, padding, longest = 0, 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        if place == first:
            padding, longest = 0, length
            continue
        size = (place + 1 - first) * longest
        padding += longest - length
        if size > _GROUP_ENTRIES or padding > max(_PADDING_FREE, _PADDING_SHARE * size):
            groups.append(np.sort(order[first:place]))
            first, padding, longest = place, 0, length
    if len(order):
        groups.append(np.sort(order[first:]))
    return groups
