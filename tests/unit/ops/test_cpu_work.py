"""What calls of the `cpu` components say that they read and multiply, against counts by hand."""

from __future__ import annotations

import torch

from cpu_matrices import random_data
from octavo.interfaces.attention import AttentionBatch, AttentionSpec, CacheSpec
from octavo.interfaces.native import Work
from octavo.interfaces.ops import Count
from octavo.interfaces.weights import WeightBlocks
from octavo_plugins.attention.cpu_attention import CpuAttention
from octavo_plugins.ops.cpu_ops import CpuOps
from octavo_plugins.ops.cpu_options import CpuOpsOptions

COLUMNS, Q4_0_BYTES = 64, 2 * 18  # two blocks a row


def blocks(block_type, rows):
    data = random_data(block_type, rows, COLUMNS)
    return WeightBlocks("w", block_type, (rows, COLUMNS), data, "file")


def work_of(owner, operation, *args):
    return owner.native_call(operation, args).work()


def test_a_linear_reads_its_weights_once_and_multiplies_each_row():
    ops, rows = CpuOps(CpuOpsOptions()), Count(3)
    weight = ops.pack_linear([blocks("Q4_0", 48)])
    args = torch.zeros(5, 48), torch.zeros(5, COLUMNS), weight, None, rows
    call = ops.native_call("linear", args)
    assert call.work() == Work(48 * Q4_0_BYTES, 3 * 48 * COLUMNS, "Q4_0")
    rows.value = 5  # counted when it is asked for
    assert call.work() == Work(48 * Q4_0_BYTES, 5 * 48 * COLUMNS, "Q4_0")


def test_a_linear_of_two_formats_is_one_piece_of_work():
    ops = CpuOps(CpuOpsOptions())
    weight = ops.pack_linear([blocks("Q4_0", 32), blocks("F32", 16)])
    args = torch.zeros(2, 48), torch.zeros(2, COLUMNS), weight, None, Count(1)
    num_bytes = 32 * Q4_0_BYTES + 16 * COLUMNS * 4
    assert work_of(ops, "linear", *args) == Work(num_bytes, 48 * COLUMNS, "Q4_0 + F32")


def test_an_embedding_reads_the_rows_of_its_tokens():
    ops = CpuOps(CpuOpsOptions())
    ids = torch.zeros(4, dtype=torch.int64)
    args = torch.zeros(4, COLUMNS), ids, ops.pack_embedding(blocks("Q4_0", 48)), Count(2)
    assert work_of(ops, "embedding", *args) == Work(2 * Q4_0_BYTES, 0, "Q4_0")


def test_what_touches_only_activations_is_not_counted():
    ops, x = CpuOps(CpuOpsOptions()), torch.zeros(2, 8)
    assert work_of(ops, "silu_mul", torch.zeros(2, 4), x, Count(2)) is None


def test_attention_counts_the_positions_that_queries_see():
    """Two sequences: one query after 6 positions, and three queries after 2."""
    attention = CpuAttention()
    batch = AttentionBatch(
        num_seqs=Count(2),
        num_tokens=Count(4),
        query_start=torch.tensor([0, 1, 4]),
        seq_lens=torch.tensor([7, 5]),
        block_tables=torch.ones(2, 2, dtype=torch.int32),
        positions=torch.tensor([6, 2, 3, 4]),
        slots=torch.zeros(4, dtype=torch.int64),
        block_size=4,
    )
    cache_spec = CacheSpec(num_kv_heads=2, head_dim=16)
    cache = attention.allocate(cache_spec, 4, 4)
    q = torch.zeros(4, 4, 16)
    token_bytes = attention.bytes_per_block(cache_spec, 4) // 4

    def work(window):
        spec = AttentionSpec(4, 2, 16, 1.0, window)
        return work_of(attention, "forward", torch.zeros_like(q), q, cache, spec, batch)

    assert token_bytes == 2 * 2 * 16 * 4
    assert work(None) == Work((7 + 5) * token_bytes, 2 * (7 + 3 + 4 + 5) * 4 * 16, "float32")
    assert work(2) == Work((2 + 4) * token_bytes, 2 * (2 + 2 + 2 + 2) * 4 * 16, "float32")
    assert work_of(attention, "prepare", batch) is None
