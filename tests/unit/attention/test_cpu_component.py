"""The attention `cpu` behind its interface: steps, bytes, dtypes, and calls that join others."""

from __future__ import annotations

import pytest
import torch

from attention_steps import BLOCK, SPEC, STEPS, TABLES, Sequences
from octavo.errors import UnsupportedError
from octavo.interfaces.attention import CacheSpec
from octavo_plugins.attention.cache_options import CpuAttentionOptions
from octavo_plugins.attention.cpu_attention import CpuAttention


class CpuSequences(Sequences):
    def spoil(self):
        self.cache.pages.fill(0xFF)


@pytest.mark.parametrize("window", [None, 5])
def test_steps_of_mixed_chunks_and_decodes_follow_the_definition(window):
    sequences = CpuSequences(CpuAttention(), TABLES, window)
    for counts in STEPS:
        out, expected = sequences.step(counts)
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=2e-6)


class ReplayedAttention(CpuAttention):
    """Makes the calls of the first step again in all others, on the same tensors."""

    def __init__(self):
        super().__init__()
        self.made, self.mine, self.replay = [], {}, None

    def own(self, **given):
        """Tensors at addresses that stay, with what the given ones hold."""
        for name, tensor in given.items():
            self.mine.setdefault(name, torch.empty_like(tensor)).copy_(tensor)
        return [self.mine[name] for name in given]

    def prepare(self, batch):
        self.made.append(self.native_call("prepare", (batch,)))

    def write(self, cache, k, v, batch):
        self.made.append(self.native_call("write", (cache, *self.own(k=k, v=v), batch)))

    def forward(self, out, q, cache, spec, batch):
        tensors = self.own(out=out, q=q)
        if self.replay is None:
            last = self.native_call("forward", (*tensors, cache, spec, batch))
            self.replay = self.made[0].join([*self.made[1:], last])
        self.replay()
        out.copy_(tensors[0])


def test_calls_joined_once_serve_all_steps():
    replayed, direct = (
        CpuSequences(attention, TABLES) for attention in (ReplayedAttention(), CpuAttention())
    )
    for counts in STEPS:
        assert torch.equal(replayed.step(counts)[0], direct.step(counts)[0])


def test_t5_write_changes_the_slots_of_the_batch_and_nothing_else():
    sequences = CpuSequences(CpuAttention(), TABLES)
    sequences.step({0: 6})
    before = sequences.cache.pages.copy()
    sequences.step({0: 2, 2: 1})
    changed = (sequences.cache.pages != before).any(axis=(1, 2)).nonzero()[0]
    assert changed.tolist() == [3, 20]


@pytest.mark.parametrize(
    ("dtype", "bytes_of_a_token"),
    [
        ("float32", 2 * 4 * 64),
        ("float16", 2 * 2 * 64),
        ("int8", 2 * (64 + 4)),
        ("int4", 64 + 4 + 32 + 8),
    ],
)
def test_bytes_are_those_that_are_allocated(dtype, bytes_of_a_token):
    attention = CpuAttention()
    spec = CacheSpec(3, 64, dtype)
    cache = attention.allocate(spec, 5, 16)
    assert attention.bytes_per_block(spec, 16) * 5 == cache.pages.nbytes
    assert attention.bytes_per_block(spec, 16) == 16 * 3 * bytes_of_a_token


def test_an_option_says_what_is_kept():
    attention = CpuAttention(CpuAttentionOptions(cache_dtype="int8"))
    assert attention.allocate(SPEC, 5, BLOCK).shape.dtype == "int8"
    asked = CpuAttention(CpuAttentionOptions()).allocate(CacheSpec(2, 8, "float16"), 5, BLOCK)
    assert asked.shape.dtype == "float16"


def test_an_unknown_cache_dtype_is_refused():
    with pytest.raises(UnsupportedError) as caught:
        CpuAttention().allocate(CacheSpec(1, 8, "bfloat16"), 2, 4)
    assert str(caught.value) == (
        "the cpu attention cannot keep a cache of dtype 'bfloat16'\n"
        "  dtypes it takes: float32, float16, int8, int4"
    )
