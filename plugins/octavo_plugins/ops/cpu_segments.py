"""A batch's adapters where the CPU kernels read them, and the call that adds what they change.

Knows the batch of adapters and the kernels' tables. Does not know weights or other operations.
"""

from __future__ import annotations

from ctypes import addressof
from typing import TYPE_CHECKING, Final

from octavo_kernels.cpu.calls import Adapt
from octavo_kernels.cpu.library import Call
from octavo_kernels.cpu.lora import SegmentTable, SlotTable
from octavo_kernels.cpu.packing import linear_bytes
from octavo_plugins.native.cpu_calls import CpuCall, address

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.interfaces.ops import AdapterBatch, AdapterParts
    from octavo_kernels.cpu.library import Library

_FLOAT_BYTES: Final = 4


class Segments:
    """A batch's segments in a table that kernels read."""

    def __init__(self, batch: AdapterBatch) -> None:
        self.batch = batch
        self.table = SegmentTable()

    def refresh(self) -> None:
        """Write the segments that the batch has by now."""
        self.table.fill([(one.slot, one.tokens, one.scales) for one in self.batch.segments])


def adapt_call(
    library: Library, segments: Segments, out: Tensor, x: Tensor, parts: AdapterParts
) -> CpuCall:
    """Return what adds each adapter's change of a matrix to its tokens. out, x: [cap, width]."""
    table = SlotTable(parts.by_slot)
    arguments = Adapt(
        out=address(out),
        x=address(x),
        by_slot=addressof(table.records),
        batch=addressof(segments.table.record),
        num_slots=table.num_slots,
        max_rank=table.max_rank,
        out_stride=out.stride(0),
        x_stride=x.stride(0),
        columns=x.shape[-1],
        outputs=out.shape[-1],
    )
    # a blend puts a token in several segments, but in no two of one adapter
    ranks_bytes = _FLOAT_BYTES * table.max_rank * len(x) * table.num_slots
    shared_bytes = ranks_bytes + linear_bytes(library, len(x), x.shape[-1])
    call = Call("adapt", arguments, (out, x, table, segments), shared_bytes)
    return CpuCall(library, (call,), segments.refresh)
