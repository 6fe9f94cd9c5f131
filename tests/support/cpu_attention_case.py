"""Sequences over shuffled blocks for the CPU kernels' attention, and what codes stand for."""

from __future__ import annotations

import math

import numpy as np
import torch

from attention_case import AttentionCase
from cpu_kernels import library
from octavo_kernels.cpu.attention import (
    BatchBuffers,
    CacheShape,
    PagedCache,
    attention_call,
    write_call,
)
from octavo_kernels.cpu.library import Program
from octavo_kernels.cpu.toolchain import NATIVE


def cell(number: int) -> np.ndarray:
    return np.array([number], dtype=np.int64)


class CpuCase(AttentionCase):
    """An `AttentionCase` whose caches are the kernels'. All bytes that nobody wrote are 0xFF.

    In every dtype these are NaN, or scaled by NaN.
    """

    def __init__(self, *args, options=NATIVE, dtype="float32", **kwargs):
        super().__init__(*args, **kwargs)
        self.library, self.dtype = library(options), dtype

    def buffers(self, slots=None, rows=slice(None), queries=None, lengths=None):
        """The buffers of a step of all sequences, or of some."""
        queries = self.queries if queries is None else queries
        lengths = self.lengths if lengths is None else lengths
        starts = torch.tensor([0, *queries]).cumsum(0)
        return BatchBuffers(
            num_seqs=cell(len(queries)),
            num_tokens=cell(0 if slots is None else len(slots)),
            query_start=starts,
            seq_lens=torch.tensor(lengths),
            block_tables=self.tables[rows].contiguous(),
            slots=torch.zeros(0, dtype=torch.int64) if slots is None else slots,
        )

    def run(self, *calls, num_threads=2):
        Program(self.library, calls).run(num_threads)

    def empty_pages(self, filler=0xFF):
        _, block_size, kv_heads, dim = self.shape
        shape = CacheShape(kv_heads, dim, block_size, self.dtype)
        cache = PagedCache.empty(self.library, shape, self.num_blocks)
        cache.pages.fill(filler)
        return cache

    def write(self, cache, i, first=0, last=None, num_threads=2):
        """Write some tokens of a sequence."""
        slots = self.slots(i, first, last)
        k, v = self.k[i][first:last], self.v[i][first:last]
        self.run(write_call(cache, k, v, self.buffers(slots)), num_threads=num_threads)

    def pages(self, filler=0xFF):
        """A cache that holds all sequences."""
        cache = self.empty_pages(filler)
        for i in range(len(self.lengths)):
            self.write(cache, i)
        return cache

    def attend(self, params, cache=None, *, num_threads=2, **batch):
        """What all queries come to, or those of the batch that the arguments of `buffers` say."""
        out = torch.full_like(self.q, 777.0)
        cache = self.pages() if cache is None else cache
        call = attention_call(out, self.q, cache, self.buffers(**batch), params)
        self.run(call, num_threads=num_threads)
        return out

    def round_to_codes(self, params):
        """Replace queries, keys and values by what their codes stand for."""
        # queries are scaled before they are rounded
        dim = self.shape[-1]
        scale = np.float32(params.scale)
        if params.softcap is None:
            scale *= np.float32(1.44269504088896341)
        else:
            scale /= np.float32(params.softcap)
        factor = float(scale / np.float32(dim & -dim))
        self.q = as_codes(self.q * factor, as_int8) / factor
        self.k = [as_codes(k, as_int8) for k in self.k]
        self.v = [as_codes(v, as_int8 if self.dtype == "int8" else as_int4) for v in self.v]


def as_codes(x: torch.Tensor, rounded) -> torch.Tensor:
    """Heads whose rotations are rounded, in float64."""
    block = x.shape[-1] & -x.shape[-1]
    return rotate(rounded(rotate(x)).double()) / block


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Hadamard's matrix times each block of dimensions, in the order that the kernels add in."""
    block = x.shape[-1] & -x.shape[-1]
    stride = 1
    while stride < block:
        first, second = x.unflatten(-1, (-1, 2, stride)).unbind(-2)
        x = torch.stack((first + second, first - second), -2).flatten(-3)
        stride *= 2
    return x


def as_int8(x: torch.Tensor) -> torch.Tensor:
    """Signed bytes, with a scale for each token and head."""
    most = x.abs().amax(-1, keepdim=True)
    # not 127 / most, which is the reciprocal of most times 127
    return (x * (torch.full_like(most, 127) / most)).round() * (most / 127)


def as_int4(x: torch.Tensor) -> torch.Tensor:
    """Numbers from 0 to 15, with a scale and an offset for each token and head."""
    least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    width = most - least
    codes = ((x - least) * (torch.full_like(width, 15) / width)).round().clamp(0, 15)
    return codes * (width / 15) + least


NAN = math.nan
