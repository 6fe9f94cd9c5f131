"""Low-rank changes as the kernels read them: factors by slot, and a table of a step's segments.

Knows factors, and which tokens they change. Does not know what an adapter is.
"""

from __future__ import annotations

import ctypes
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

#: as many floats as a vector has at most
_PADDING: Final = 16


@dataclass(frozen=True, slots=True)
class LowRankFactors:
    """One adapter's changes to one matrix.

    a: [sum of ranks, in, padded]. `pieces` are (b transposed: [rank, out, padded], first rank,
    first output); `records` is how the kernels see them. All are float32 or all float16.
    """

    a: Tensor
    pieces: tuple[tuple[Tensor, int, int], ...]
    records: ctypes.Array[LowRankPiece]

    @classmethod
    def of(
        cls, changes: Sequence[tuple[Tensor, Tensor, int]], arena: Arena, *, is_half: bool
    ) -> LowRankFactors:
        """Take changes (a [rank, in], b [out, rank], first output of b) of one matrix.

        `is_half` keeps them as float16, unless one of them does not fit.
        """
        joined = torch.cat([a for a, _, _ in changes])
        is_half = is_half and all(_fits_half(one) for one in (joined, *(b for _, b, _ in changes)))
        dtype = torch.float16 if is_half else torch.float32
        pieces, records, rank = [], [], 0
        for a, b, first in changes:
            laid_out = _laid_out(b.T, dtype, arena)
            address, stride = laid_out.data_ptr(), laid_out.shape[1]
            records.append(LowRankPiece(address, rank, len(a), first, len(b), stride))
            pieces.append((laid_out, rank, first))
            rank += len(a)
        return cls(
            _laid_out(joined, dtype, arena),
            tuple(pieces),
            (LowRankPiece * len(records))(*records),
        )

    def record(self) -> LowRank:
        """Return how the kernels see it all."""
        return LowRank(
            a=self.a.data_ptr(),
            pieces=ctypes.addressof(self.records),
            rank=len(self.a),
            num_pieces=len(self.pieces),
            a_stride=self.a.shape[1],
            is_half=self.a.dtype == torch.float16,
        )


def _fits_half(x: Tensor) -> bool:
    return bool((x.abs() <= torch.finfo(torch.float16).max).all())


def _laid_out(x: Tensor, dtype: torch.dtype, arena: Arena) -> Tensor:
    """Copy [rows, columns] into an arena, with 0 so far behind that any vector may be read."""
    stride = -(-(x.shape[1] + _PADDING) // _PADDING) * _PADDING
    memory = arena.take(len(x) * stride * dtype.itemsize)
    copy = torch.from_numpy(memory).view(dtype).view(len(x), stride)
    copy[:, : x.shape[1]] = x
    return copy


class SlotTable:
    """The changes to one matrix, by slot."""

    def __init__(self, by_slot: Mapping[int, LowRankFactors]) -> None:
        self.kept = dict(by_slot)
        self.num_slots = max(by_slot, default=-1) + 1
        self.max_rank = max((len(one.a) for one in by_slot.values()), default=0)
        self.records = (LowRank * self.num_slots)()
        for slot, one in by_slot.items():
            self.records[slot] = one.record()


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
