"""Runs sequences through steps of an attention component, beside the definition of attention."""

from __future__ import annotations

import math

import torch

from octavo.interfaces.attention import AttentionBatch, AttentionSpec, CacheSpec
from octavo.interfaces.ops import Count

HEADS, KV_HEADS, DIM, BLOCK = 4, 2, 8, 4
SPEC = CacheSpec(KV_HEADS, DIM)
CAP, SEQS = 32, 4
TABLES = [[7, 3, 30, 4, 9, 12, 1], [2, 39, 8, 5], [20, 21, 22], [31, 11, 10, 13]]
#: steps that mix prefills, chunks and decodes: {index of a sequence: its tokens}
STEPS = (
    {0: 9, 1: 1},
    {1: 3, 0: 1, 2: 6},
    {0: 1, 1: 1, 2: 1},
    {3: 16, 0: 1, 1: 5},
    {2: 1, 0: 12, 1: 1},
    {2: 1},
)


def new_batch(device="cpu"):
    """Return persistent buffers full of what an earlier step may have left."""
    return AttentionBatch(
        num_seqs=Count(),
        num_tokens=Count(),
        query_start=torch.full((SEQS + 1,), 10**6, device=device),
        seq_lens=torch.full((SEQS,), 10**6, device=device),
        block_tables=torch.zeros(SEQS, 16, dtype=torch.int32, device=device),
        positions=torch.full((CAP,), 10**6, device=device),
        slots=torch.full((CAP,), 10**6, device=device),
        block_size=BLOCK,
    )


class Sequences:
    """Runs sequences through steps of an attention, and remembers keys and values."""

    def __init__(self, attention, tables, window=None, device="cpu"):
        self.attention, self.batch, self.device = attention, new_batch(device), device
        self.spec = AttentionSpec(HEADS, KV_HEADS, DIM, 0.4, window)
        self.cache = self.attention.allocate(SPEC, 40, BLOCK)
        self.spoil()
        self.tables = tables
        self.k = [torch.empty(0, KV_HEADS, DIM) for _ in tables]
        self.v = [torch.empty(0, KV_HEADS, DIM) for _ in tables]
        self.generator = torch.Generator().manual_seed(0)

    def spoil(self):
        """Make all of the cache NaN."""
        self.cache.k.fill_(math.nan)
        self.cache.v.fill_(math.nan)

    def randn(self, *shape):
        return torch.randn(shape, generator=self.generator)

    def step(self, counts):
        """Advance sequences by counts {index: tokens}; returns attended and expected, flat."""
        batch, total = self.batch, sum(counts.values())
        q, k, v = (self.randn(CAP, heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
        batch.num_seqs.value, batch.num_tokens.value = len(counts), total
        start, expected = 0, []
        for row, (i, count) in enumerate(counts.items()):
            rows = slice(start, start + count)
            positions = torch.arange(len(self.k[i]), len(self.k[i]) + count)
            self.k[i] = torch.cat((self.k[i], k[rows]))
            self.v[i] = torch.cat((self.v[i], v[rows]))
            table = torch.tensor(self.tables[i])
            batch.query_start[row], batch.query_start[row + 1] = start, start + count
            batch.seq_lens[row] = len(self.k[i])
            batch.block_tables[row] = 0
            batch.block_tables[row, : len(table)] = table
            batch.positions[rows] = positions.to(self.device)
            slots = table[positions // BLOCK] * BLOCK + positions % BLOCK
            batch.slots[rows] = slots.to(self.device)
            expected.append(self.reference(i, q[rows], positions))
            start += count
        out = torch.full((CAP, HEADS, DIM), 777.0, device=self.device)
        self.attention.prepare(batch)
        self.attention.write(self.cache, k.to(self.device), v.to(self.device), batch)
        self.attention.forward(out, q.to(self.device), self.cache, self.spec, batch)
        assert (out[total:] == 777.0).all()
        return out[:total].cpu(), torch.cat(expected)

    def reference(self, i, q, positions):
        """Return attention by its definition, in float64, over what is remembered."""
        keys = self.k[i].double().repeat_interleave(HEADS // KV_HEADS, 1)
        values = self.v[i].double().repeat_interleave(HEADS // KV_HEADS, 1)
        distance = positions[:, None] - torch.arange(len(keys))
        is_hidden = distance < 0
        if self.spec.window is not None:
            is_hidden |= distance >= self.spec.window
        scores = torch.einsum("nhd,thd->hnt", q.double(), keys) * self.spec.scale
        weights = torch.softmax(scores.masked_fill(is_hidden, -math.inf), -1)
        return torch.einsum("hnt,thd->nhd", weights, values)
