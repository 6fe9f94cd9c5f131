"""Runs sequences through steps of an attention back end, beside attention by its definition.

Knows batches, tables and slots. Does not know how any back end keeps keys and values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from octavo.interfaces.attention import AttentionBatch, AttentionSpec, CacheSpec
from octavo.interfaces.ops import Count

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.interfaces.attention import Attention

BLOCK, BLOCKS = 4, 40
CAP, SEQS, TABLE = 32, 4, 16
_MAX_LEN = 36
_FAR = 10**6


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads, and how they attend."""

    heads: int
    kv_heads: int
    dim: int
    window: int | None = None
    softcap: float | None = None
    scale: float = 0.25


def tables_of(seed: int) -> list[list[int]]:
    """Return the blocks of four sequences, shuffled; some blocks are nobody's."""
    order = (torch.randperm(BLOCKS - 1, generator=torch.Generator().manual_seed(seed)) + 1).tolist()
    return [order[:9], order[9:16], order[16:23], order[23:30]]


def new_batch(device: str, num_blocks: int = TABLE, cap: int = CAP) -> AttentionBatch:
    """Return persistent buffers full of what an earlier step may have left."""
    return AttentionBatch(
        num_seqs=Count(),
        num_tokens=Count(),
        query_start=torch.full((SEQS + 1,), _FAR, device=device),
        seq_lens=torch.full((SEQS,), _FAR, device=device),
        block_tables=torch.zeros(SEQS, num_blocks, dtype=torch.int32, device=device),
        positions=torch.full((cap,), _FAR, device=device),
        slots=torch.full((cap,), _FAR, device=device),
        block_size=BLOCK,
    )


class Steps:
    """Sequences in the middle of their steps; all keys and values are remembered.

    `tables` are their blocks, which say how long they may become.
    """

    canary: ClassVar[float] = 777.0

    def __init__(
        self, attention: Attention, shape: Shape, tables: list[list[int]], device: str
    ) -> None:
        self.attention, self.shape, self.tables, self.device = attention, shape, tables, device
        self.max_len = max(_MAX_LEN, BLOCK * max(map(len, tables)))
        self.cap = self.max_len if self.max_len > _MAX_LEN else CAP
        self.batch = new_batch(device, max(TABLE, *map(len, tables)), self.cap)
        num_blocks = max(BLOCKS, 1 + max(map(max, tables)))
        self.cache = attention.allocate(CacheSpec(shape.kv_heads, shape.dim), num_blocks, BLOCK)
        self.lengths = [0] * len(tables)
        generator = torch.Generator().manual_seed(7)
        #: queries, keys and values of each sequence by position
        self.inputs: list[tuple[Tensor, Tensor, Tensor]] = [
            (
                torch.randn(self.max_len, shape.heads, shape.dim, generator=generator),
                torch.randn(self.max_len, shape.kv_heads, shape.dim, generator=generator),
                torch.randn(self.max_len, shape.kv_heads, shape.dim, generator=generator),
            )
            for _ in tables
        ]

    @property
    def spec(self) -> AttentionSpec:
        """Return how the layer attends."""
        one = self.shape
        return AttentionSpec(one.heads, one.kv_heads, one.dim, one.scale, one.window, one.softcap)

    def step(self, counts: dict[int, int]) -> tuple[Tensor, Tensor]:
        """Advance sequences by counts {index: tokens}; return attended and expected, flat."""
        out = self._run(counts)
        total = sum(counts.values())
        expected = [self._by_definition(i, count) for i, count in counts.items()]
        return out[:total].cpu(), torch.cat(expected)

    def step_and_rest(self, counts: dict[int, int]) -> Tensor:
        """Advance, and return the rows behind the batch's tokens."""
        return self._run(counts)[sum(counts.values()) :].cpu()

    def _run(self, counts: dict[int, int]) -> Tensor:
        batch, total, shape = self.batch, sum(counts.values()), self.shape
        q = torch.full((self.cap, shape.heads, shape.dim), self.canary)
        k, v = (torch.full((self.cap, shape.kv_heads, shape.dim), self.canary) for _ in range(2))
        batch.num_seqs.value, batch.num_tokens.value = len(counts), total
        start = 0
        for row, (i, count) in enumerate(counts.items()):
            first, rows = self.lengths[i], slice(start, start + count)
            positions = torch.arange(first, first + count)
            for buffer, held in zip((q, k, v), self.inputs[i], strict=True):
                buffer[rows] = held[first : first + count]
            table = torch.tensor(self.tables[i])
            batch.query_start[row], batch.query_start[row + 1] = start, start + count
            batch.seq_lens[row] = first + count
            batch.block_tables[row] = 0
            batch.block_tables[row, : len(table)] = table
            batch.positions[rows] = positions.to(self.device)
            slots = table[positions // BLOCK] * BLOCK + positions % BLOCK
            batch.slots[rows] = slots.to(self.device)
            self.lengths[i] += count
            start += count
        out = torch.full((self.cap, shape.heads, shape.dim), self.canary, device=self.device)
        self.attention.prepare(batch)
        self.attention.write(self.cache, k.to(self.device), v.to(self.device), batch)
        self.attention.forward(out, q.to(self.device), self.cache, self.spec, batch)
        return out

    def spoil(self) -> None:
        """Write NaN into every block, as sequences would that have gone since."""
        kept = self.tables, self.inputs, self.lengths
        nothing = tuple(torch.full_like(one, math.nan) for one in self.inputs[0])
        blocks = list(range(BLOCKS))
        for first in range(0, BLOCKS, 8):
            self.tables, self.lengths = [blocks[first : first + 8]], [0]
            self.inputs = [(nothing[0], nothing[1], nothing[2])]
            self._run({0: 8 * BLOCK})
        self.tables, self.inputs, self.lengths = kept

    def _by_definition(self, i: int, count: int) -> Tensor:
        """Return attention in float64 of the last `count` positions."""
        shape, length = self.shape, self.lengths[i]
        q, k, v = (one[:length].double() for one in self.inputs[i])
        q = q[length - count :]
        keys = k.repeat_interleave(shape.heads // shape.kv_heads, 1)
        values = v.repeat_interleave(shape.heads // shape.kv_heads, 1)
        distance = torch.arange(length - count, length)[:, None] - torch.arange(length)
        is_hidden = distance < 0
        if shape.window is not None:
            is_hidden |= distance >= shape.window
        scores = torch.einsum("nhd,thd->hnt", q, keys) * shape.scale
        if shape.softcap is not None:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        weights = torch.softmax(scores.masked_fill(is_hidden, -math.inf), -1)
        return torch.einsum("hnt,thd->nhd", weights, values)
