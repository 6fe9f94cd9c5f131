"""Deals out the attention of a step: which program reduces which pieces for which queries.

Tiles of queries and pieces of keys depend on the sequences alone. Whether one program takes all
pieces of a tile, or several share them and a second kernel merges, depends on how many programs
the machine wants; it changes speed, never a bit of a result.

Knows lengths. Does not know queries, keys, values or Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from octavo_kernels.reference.attention_plan import RaggedBatch, Workspace
from octavo_kernels.triton.arguments import power_of_two

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

#: programs for each processor of a GPU: enough that a long one does not keep the others waiting
PROGRAMS_PER_PROCESSOR: Final = 4
# Stands for "no window": more than any position.
NO_WINDOW: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a layer's work is cut; the same for every batch, or the bits would depend on it.

    `rows` (queries times the heads of a key head) and `keys` are what one product covers, powers
    of two from 16 on; `piece` is the number of positions of a piece, a multiple of `keys`.
    """

    rows: int
    keys: int
    piece: int

    @classmethod
    def for_layer(cls, ratio: int, head_dim: int, dtype: torch.dtype) -> Tiles:
        """Return the default of a layer with `ratio` query heads to a key head.

        Chosen by arithmetic, see docs/decisions/0021: rows enough that a prefill reuses the keys
        it reads, few enough that a decode is still bound by memory.
        """
        is_narrow = dtype.itemsize < torch.float32.itemsize
        rows = 64 if is_narrow else 16
        keys = 64 if is_narrow and head_dim <= 64 else 32  # noqa: PLR2004 - registers are full
        return cls(max(rows, power_of_two(ratio)), keys, 256)


@dataclass(frozen=True, slots=True)
class WorkList:
    """The work of the layers of one window and shape.

    items: int32 [n, 8]: first flat token, queries, position of the first, sequence, first piece,
    end piece, base, unused. `base` is where its parts begin, counted in queries; -1 when it folds
    them itself. merges: int32 [m, 4]: flat token, base, queries from one part to the next, parts.
    num_parts: parts of all items, counted in queries.
    """

    items: Tensor
    merges: Tensor
    num_parts: int


class TritonPlan:
    """A step's plan, by window and tiles. Valid while the batch it was made of does not change.

    `num_programs`: how many programs at least keep the machine busy.
    """

    def __init__(
        self, batch: RaggedBatch, num_programs: int = 1, workspace: Workspace | None = None
    ) -> None:
        self.batch = batch
        self.num_programs = num_programs
        self.workspace = workspace or Workspace()
        self._query_start = batch.query_start.cpu().numpy()
        self._seq_lens = batch.seq_lens.cpu().numpy()
        self._lists: dict[tuple[int, int, int, int], WorkList] = {}

    def work_for(self, window: int, tiles: Tiles, ratio: int, kv_heads: int) -> WorkList:
        """Return the work of layers with these heads that see `window` positions."""
        key = (window, tiles.rows // ratio, tiles.piece, kv_heads)
        work = self._lists.get(key)
        if work is None:
            work = self._lists[key] = self._deal(*key)
        return work

    def _deal(self, window: int, queries: int, piece: int, kv_heads: int) -> WorkList:
        """Cut sequences into tiles of at most `queries`, and the pieces of tiles among programs."""
        lengths = np.diff(self._query_start)
        sequence, place = _spread(-(-lengths // queries))
        first = place * queries
        count = np.minimum(queries, lengths[sequence] - first)
        token = self._query_start[sequence] + first
        position = self._seq_lens[sequence] - lengths[sequence] + first
        first_piece = np.maximum(0, position - window + 1) // piece
        end_piece = (position + count - 1) // piece + 1
        pieces = end_piece - first_piece
        share = max(1, -(-int(pieces.sum()) * kv_heads // self.num_programs))
        each = -(-pieces // -(-pieces // share))  # pieces of a program, evenly
        is_shared = pieces > each
        parts = np.where(is_shared, pieces * count, 0)
        base = np.cumsum(parts) - parts
        tile, place = _spread(-(-pieces // each))
        start = first_piece[tile] + place * each[tile]
        end = np.minimum(start + each[tile], end_piece[tile])
        own = base[tile] + place * each[tile] * count[tile]
        bases = np.where(is_shared[tile], own, -1)
        columns = (token[tile], count[tile], position[tile], sequence[tile], start, end, bases)
        # the longest first, so that none is still at work when the others are done
        order = np.argsort(start - end, kind="stable")
        items = np.zeros((len(tile), 8), dtype=np.int32)
        items[:, :7] = np.stack(columns, 1)[order]
        shared = np.flatnonzero(is_shared)
        row, query = _spread(count[shared])
        merged = shared[row]
        merges = (token[merged] + query, base[merged] + query, count[merged], pieces[merged])
        return WorkList(
            self._to_device(items),
            self._to_device(np.stack(merges, 1).astype(np.int32)),
            int(parts.sum()),
        )

    def _to_device(self, array: NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(array).to(self.batch.block_tables.device)


def _spread(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for counts[i] entries of each i in order, their i and their number within it."""
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - starts[owner]
