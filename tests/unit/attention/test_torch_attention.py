"""The torch attention behind its interface: counts, persistent buffers, steps that follow."""

from __future__ import annotations

import pytest
import torch

from attention_steps import STEPS, TABLES, Sequences
from octavo.errors import UnsupportedError
from octavo.interfaces.attention import CacheSpec
from octavo_plugins.attention.cache_options import TensorAttentionOptions
from octavo_plugins.attention.torch_attention import TorchAttention


@pytest.mark.parametrize("window", [None, 5])
def test_steps_of_mixed_chunks_and_decodes_follow_the_definition(window):
    sequences = Sequences(TorchAttention(), TABLES, window)
    for counts in STEPS:
        out, expected = sequences.step(counts)
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=2e-6)


def test_t5_write_changes_the_slots_of_the_batch_and_nothing_else():
    sequences = Sequences(TorchAttention(), TABLES)
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


def test_a_cache_dtype_other_than_the_activations_is_refused():
    attention = TorchAttention(TensorAttentionOptions(cache_dtype="float16"))
    assert attention.allocate(CacheSpec(1, 8, "float16"), 2, 4).k.dtype == torch.float16
    with pytest.raises(UnsupportedError) as caught:
        attention.allocate(CacheSpec(1, 8, "float32"), 2, 4)
    assert str(caught.value) == (
        "the torch attention cannot keep a cache of dtype 'float16' beside activations of dtype "
        "'float32'\n"
        "  leave cache-dtype at 'auto', or set dtype to 'float16'\n"
        "  attention 'cpu' keeps others: float32, float16, int8, int4"
    )
