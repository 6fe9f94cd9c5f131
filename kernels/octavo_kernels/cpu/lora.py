"""Low-rank changes as the kernels read them: factors by slot, and a table of a step's segments.

Knows factors, and which tokens they change. Does not know what an adapter is.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo_kernels.cpu.calls import AdapterSegment, AdapterSegments, LowRank, LowRankPiece

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class LowRankFactors:
    """One adapter's changes to one matrix.

    a: float32 [sum of ranks, in]. `pieces` are (b transposed: float32 [rank, out], first rank,
    first output); `records` is how the kernels see them.
    """

    a: Tensor
    pieces: tuple[tuple[Tensor, int, int], ...]
    records: ctypes.Array[LowRankPiece]

    @classmethod
    def of(cls, changes: Sequence[tuple[Tensor, Tensor, int]]) -> LowRankFactors:
        """Take changes (a [rank, in], b [out, rank], first output of b) of one matrix."""
        pieces, rank = [], 0
        for a, b, first in changes:
            pieces.append((b.T.float().contiguous(), rank, first))
            rank += len(a)
        records = (LowRankPiece * len(pieces))(
            *(
                LowRankPiece(b.data_ptr(), first_rank, b.shape[0], first, b.shape[1])
                for b, first_rank, first in pieces
            )
        )
        joined = torch.cat([a for a, _, _ in changes]).float().contiguous()
        return cls(joined, tuple(pieces), records)


class SlotTable:
    """The changes to one matrix, by slot."""

    def __init__(self, by_slot: Mapping[int, LowRankFactors]) -> None:
        self.kept = dict(by_slot)
        self.num_slots = max(by_slot, default=-1) + 1
        self.max_rank = max((len(one.a) for one in by_slot.values()), default=0)
        self.records = (LowRank * self.num_slots)()
        for slot, one in by_slot.items():
            self.records[slot] = LowRank(
                one.a.data_ptr(), ctypes.addressof(one.records), len(one.a), len(one.pieces)
            )


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
