"""The torch attention behind its interface: counts, persistent buffers, steps that follow."""

from __future__ import annotations

import math

import pytest
import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.attention import AttentionBatch, AttentionSpec, CacheSpec
from octavo.interfaces.ops import Count
from octavo_plugins.attention.torch_attention import TorchAttention

HEADS, KV_HEADS, DIM, BLOCK = 4, 2, 8, 4
SPEC = CacheSpec(KV_HEADS, DIM)
CAP, SEQS = 32, 4


def new_batch():
    """Return persistent buffers full of what an earlier step may have left."""
    return AttentionBatch(
        num_seqs=Count(),
        num_tokens=Count(),
        query_start=torch.full((SEQS + 1,), 10**6),
        seq_lens=torch.full((SEQS,), 10**6),
        block_tables=torch.zeros(SEQS, 16, dtype=torch.int32),
        positions=torch.full((CAP,), 10**6),
        slots=torch.full((CAP,), 10**6),
        block_size=BLOCK,
    )


class Sequences:
    """Runs sequences through steps of an attention, and remembers keys and values."""

    def __init__(self, tables, window=None):
        self.attention, self.batch = TorchAttention(), new_batch()
        self.spec = AttentionSpec(HEADS, KV_HEADS, DIM, 0.4, window)
        self.cache = self.attention.allocate(SPEC, 40, BLOCK)
        self.cache.k.fill_(math.nan)
        self.cache.v.fill_(math.nan)
        self.tables = tables
        self.k = [torch.empty(0, KV_HEADS, DIM) for _ in tables]
        self.v = [torch.empty(0, KV_HEADS, DIM) for _ in tables]
        self.generator = torch.Generator().manual_seed(0)

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
            batch.positions[rows] = positions
            batch.slots[rows] = table[positions // BLOCK] * BLOCK + positions % BLOCK
            expected.append(self.reference(i, q[rows], positions))
            start += count
        out = torch.full((CAP, HEADS, DIM), 777.0)
        self.attention.prepare(batch)
        self.attention.write(self.cache, k, v, batch)
        self.attention.forward(out, q, self.cache, self.spec, batch)
        assert (out[total:] == 777.0).all()
        return out[:total], torch.cat(expected)

    def reference(self, i, q, positions):
        keys = self.k[i].double().repeat_interleave(HEADS // KV_HEADS, 1)
        values = self.v[i].double().repeat_interleave(HEADS // KV_HEADS, 1)
        distance = positions[:, None] - torch.arange(len(keys))
        is_hidden = distance < 0
        if self.spec.window is not None:
            is_hidden |= distance >= self.spec.window
        scores = torch.einsum("nhd,thd->hnt", q.double(), keys) * self.spec.scale
        weights = torch.softmax(scores.masked_fill(is_hidden, -math.inf), -1)
        return torch.einsum("hnt,thd->nhd", weights, values)


TABLES = [[7, 3, 30, 4, 9, 12, 1], [2, 39, 8, 5], [20, 21, 22], [31, 11, 10, 13]]


@pytest.mark.parametrize("window", [None, 5])
def test_steps_of_mixed_chunks_and_decodes_follow_the_definition(window):
    sequences = Sequences(TABLES, window)
    for counts in (
        {0: 9, 1: 1},
        {1: 3, 0: 1, 2: 6},
        {0: 1, 1: 1, 2: 1},
        {3: 16, 0: 1, 1: 5},
        {2: 1, 0: 12, 1: 1},
        {2: 1},
    ):
        out, expected = sequences.step(counts)
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=2e-6)


def test_t5_write_changes_the_slots_of_the_batch_and_nothing_else():
    sequences = Sequences(TABLES)
    sequences.step({0: 6})
    before = sequences.cache.k.clone()
    sequences.step({0: 2, 2: 1})
    written = (sequences.cache.k != before) & ~(sequences.cache.k.isnan() & before.isnan())
    assert written.all(-1).all(-1).nonzero().tolist() == [[3, 2], [3, 3], [20, 0]]
    assert int(written.any(-1).any(-1).sum()) == 3


def test_bytes_are_those_that_are_allocated():
    attention = TorchAttention()
    for dtype in ("float32", "float16", "bfloat16"):
        spec = CacheSpec(3, 64, dtype)
        cache = attention.allocate(spec, 5, 16)
        assert attention.bytes_per_block(spec, 16) * 5 == cache.k.nbytes + cache.v.nbytes
        assert cache.k.dtype == getattr(torch, dtype)


def test_an_unknown_cache_dtype_is_refused():
    with pytest.raises(UnsupportedError) as caught:
        TorchAttention().allocate(CacheSpec(1, 8, "fp8"), 2, 4)
    assert str(caught.value) == (
        "the torch attention cannot keep a cache of dtype 'fp8'\n"
        "  dtypes it takes: float32, float64, float16, bfloat16"
    )
