"""Sequences over shuffled blocks, for any kernel of paged attention, and what it must come to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from octavo_kernels.reference.attention import naive_attention
from octavo_kernels.reference.attention_plan import RaggedBatch
from octavo_kernels.reference.kv_cache import KVCache, write_kv

if TYPE_CHECKING:
    from octavo_kernels.reference.attention import AttentionParams


class AttentionCase:
    """Sequences of given lengths and query counts over shuffled blocks; all else is NaN."""

    def __init__(self, lengths, queries, heads, kv_heads, *, dim=16, block_size=16, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.lengths, self.queries = lengths, queries
        self.block_size = block_size
        per_sequence = [-(-length // block_size) for length in lengths]
        self.num_blocks = sum(per_sequence) + 5
        self.tables = torch.zeros(len(lengths), max(per_sequence) + 2, dtype=torch.int32)
        self.k = [self._randn(length, kv_heads, dim) for length in lengths]
        self.v = [self._randn(length, kv_heads, dim) for length in lengths]
        starts = torch.tensor([0, *queries]).cumsum(0)
        self.q = self._randn(int(starts[-1]), heads, dim)
        self.shape = (self.num_blocks, block_size, kv_heads, dim)
        self.starts = starts
        self.shuffle(per_sequence)

    def _randn(self, *shape):
        return torch.randn(shape, generator=self.generator)

    def shuffle(self, per_sequence):
        """Give the sequences other blocks."""
        order = (torch.randperm(self.num_blocks - 1, generator=self.generator) + 1).int()
        for i, count in enumerate(per_sequence):
            self.tables[i, :count], order = order[:count], order[count:]

    def round_to(self, dtype):
        """Round queries, keys and values to what a narrower type can hold."""
        self.q = self.q.to(dtype).float()
        self.k = [k.to(dtype).float() for k in self.k]
        self.v = [v.to(dtype).float() for v in self.v]

    @property
    def batch(self):
        return RaggedBatch(self.starts, torch.tensor(self.lengths), self.tables, self.block_size)

    def batch_on(self, device):
        """Return the batch with its tables on a device, as a component has it."""
        return replace(self.batch, block_tables=self.tables.to(device))

    def slots(self, i, first=0, last=None):
        positions = torch.arange(first, self.lengths[i] if last is None else last)
        blocks = self.tables[i].long()[positions // self.block_size]
        return blocks * self.block_size + positions % self.block_size

    def cache(self, dtype=torch.float32, filler=math.nan, lengths=None):
        """Return a cache with the first `lengths` keys and values of each sequence, or all."""
        cache = KVCache(
            torch.full(self.shape, filler, dtype=dtype), torch.full(self.shape, filler, dtype=dtype)
        )
        for i, (k, v) in enumerate(zip(self.k, self.v, strict=True)):
            end = self.lengths[i] if lengths is None else lengths[i]
            write_kv(cache, k[:end].to(dtype), v[:end].to(dtype), self.slots(i, 0, end))
        return cache

    def oracle(self, params: AttentionParams):
        """Return attention by its definition, in float64."""
        return naive_attention(self.q.double(), self.cache(torch.float64), self.batch, params)
