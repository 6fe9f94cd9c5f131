"""A batch's adapters where the CPU kernels read them.

Knows the batch of adapters and the kernels' table. Does not know weights or operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo_kernels.cpu.lora import SegmentTable

if TYPE_CHECKING:
    from octavo.interfaces.ops import AdapterBatch


class Segments:
    """A batch's segments in a table that kernels read."""

    def __init__(self, batch: AdapterBatch) -> None:
        self.batch = batch
        self.table = SegmentTable()

    def refresh(self) -> None:
        """Write the segments that the batch has by now."""
        self.table.fill([(one.slot, one.tokens, one.scales) for one in self.batch.segments])
