"""Low-rank changes as the kernels read them: factors by slot, and a table of a step's segments.

Knows factors, and which tokens they change. Does not know what an adapter is.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from octavo_kernels.cpu.lora_records import (
    AdapterSegment,
    AdapterSegments,
    LowRank,
    LowRankPiece,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from octavo_kernels.cpu.memory import Arena

#: ranks that kernels sum at once
_GROUP: Final = 4


@dataclass(frozen=True, slots=True)
class LowRankFactors:
    """One adapter's changes to one matrix.

    a: [ranks / 4, vectors of in, 4, lanes]. `panels` has b of each change, [panels, rank, lanes];
    `records` is how the kernels see these. All are float32 or all float16.
    """

    a: Tensor
    panels: tuple[Tensor, ...]
    records: ctypes.Array[LowRankPiece]

    @classmethod
    def of(
        cls,
        changes: Sequence[tuple[Tensor, Tensor, int]],
        arena: Arena,
        *,
        lanes: int,
        is_half: bool,
    ) -> LowRankFactors:
        """Take changes (a [rank, in], b [out, rank], first output of b) of one matrix.

        `lanes` is the library's; `is_half` keeps factors as float16, unless one does not fit.
        """
        if is_half:
            changes = [(*_balanced(a, b), first) for a, b, first in changes]
        joined = torch.cat([a for a, _, _ in changes])
        is_half = is_half and all(_fits_half(one) for one in (joined, *(b for _, b, _ in changes)))
        dtype = torch.float16 if is_half else torch.float32
        panels, records, rank = [], [], 0
        for a, b, first in changes:
            laid_out = _in_panels(b, first % lanes, lanes, dtype, arena)
            records.append(
                LowRankPiece(laid_out.data_ptr(), rank, len(a), first // lanes, len(laid_out))
            )
            panels.append(laid_out)
            rank += len(a)
        return cls(
            _in_groups(joined, lanes, dtype, arena),
            tuple(panels),
            (LowRankPiece * len(records))(*records),
        )

    def record(self) -> LowRank:
        """Return how the kernels see it all."""
        return LowRank(
            a=self.a.data_ptr(),
            pieces=ctypes.addressof(self.records),
            rank=len(self.a) * _GROUP,
            num_pieces=len(self.panels),
            is_half=self.a.dtype == torch.float16,
        )


def _balanced(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a and b times a power of two and its inverse: equally large, of the same product.

    One that is far smaller than the other would lose its bits where numbers of 16 bits end.
    """
    sizes = [float(one.abs().max()) if one.numel() else 0.0 for one in (a, b)]
    if not all(0.0 < size < math.inf for size in sizes):
        return a, b
    power = round((math.log2(sizes[1]) - math.log2(sizes[0])) / 2)
    return a.float() * 2.0**power, b.float() * 2.0**-power


def _fits_half(x: Tensor) -> bool:
    return bool((x.abs() <= torch.finfo(torch.float16).max).all())


def _in_groups(a: Tensor, lanes: int, dtype: torch.dtype, arena: Arena) -> Tensor:
    """Copy [rank, in] as [groups of ranks, vectors of in, 4, lanes], with 0 behind either end."""
    rank, columns = a.shape
    groups, vectors = -(-rank // _GROUP), -(-columns // lanes)
    padded = torch.zeros(groups * _GROUP, vectors * lanes, dtype=dtype)
    padded[:rank, :columns] = a
    copy = _take((groups, vectors, _GROUP, lanes), dtype, arena)
    copy.copy_(padded.view(groups, _GROUP, vectors, lanes).transpose(1, 2))
    return copy


def _in_panels(b: Tensor, skipped: int, lanes: int, dtype: torch.dtype, arena: Arena) -> Tensor:
    """Copy [out, rank] as [panels, rank, lanes], 0 in the first `skipped` lanes and at the end."""
    outputs, rank = b.shape
    num_panels = -(-(skipped + outputs) // lanes)
    padded = torch.zeros(num_panels * lanes, rank, dtype=dtype)
    padded[skipped : skipped + outputs] = b
    copy = _take((num_panels, rank, lanes), dtype, arena)
    copy.copy_(padded.view(num_panels, lanes, rank).transpose(1, 2))
    return copy


def _take(shape: tuple[int, ...], dtype: torch.dtype, arena: Arena) -> Tensor:
    memory = arena.take(math.prod(shape) * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).view(shape)


class SlotTable:
    """The changes to one matrix, by slot."""

    def __init__(self, by_slot: Mapping[int, LowRankFactors]) -> None:
        self.kept = dict(by_slot)
        self.num_slots = max(by_slot, default=-1) + 1
        self.records = (LowRank * self.num_slots)()
        for slot, one in by_slot.items():
            self.records[slot] = one.record()
        self.max_rank = max((record.rank for record in self.records), default=0)


class SegmentTable:
    """The segments of a step: refilled before it, at an address that stays."""

    def __init__(self) -> None:
        self.record = AdapterSegments()
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._segments = (AdapterSegment * 0)()

    def fill(self, segments: Sequence[tuple[int, Tensor, Tensor]]) -> None:
        """Set (slot, tokens int64 [n], scales float32 [n, 1]) of each segment."""
        if len(segments) > len(self._segments):
            self._segments = (AdapterSegment * len(segments))()
            self.record.segments = ctypes.addressof(self._segments)
        self._kept = [(tokens.contiguous(), scales.contiguous()) for _, tokens, scales in segments]
        for record, (slot, _, _), (tokens, scales) in zip(
            self._segments, segments, self._kept, strict=False
        ):
            record.tokens, record.scales = tokens.data_ptr(), scales.data_ptr()
            record.slot, record.num_tokens = slot, len(tokens)
        self.record.count = len(segments)
        self.record.num_tokens = sum(len(tokens) for tokens, _ in self._kept)
