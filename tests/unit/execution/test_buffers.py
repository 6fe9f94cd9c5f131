"""The persistent buffers of a step: sizes, dtypes, and what is shared between them."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from octavo.execution.buffers import StepCapacity, make_buffers
from octavo.execution.cache_layout import CacheLayout
from octavo.interfaces.attention import CacheSpec, StateSpec
from octavo.interfaces.executor import CacheGroup
from simple_ops import SimpleAttention

CAPACITY = StepCapacity(max_tokens=32, max_rows=6, max_seqs=5, max_blocks=7, block_size=16)


def architecture() -> mock.Mock:
    model = mock.Mock(hidden_size=24, vocab_size=99, attention=SimpleAttention())
    model.ops.activation_dtype = "bfloat16"
    model.cache_specs.return_value = [CacheSpec(2, 8), CacheSpec(1, 8)]
    return model


def test_buffers_have_room_for_their_capacity():
    step = make_buffers(architecture(), CAPACITY, CacheLayout.of(()), 1)
    batch = step.attention
    assert step.token_ids.shape == step.positions.shape == batch.slots.shape == (32,)
    assert step.hidden.shape == (32, 24)
    assert step.logits.shape == (6, 99)
    assert step.logit_rows.shape == (6,)
    assert batch.query_start.shape == (6,)
    assert batch.seq_lens.shape == (5,)
    assert batch.block_tables.shape == (5, 7)
    assert batch.block_size == 16
    assert CAPACITY.max_positions == 112


def test_buffers_have_the_dtypes_that_the_interfaces_name():
    step = make_buffers(architecture(), CAPACITY, CacheLayout.of(()), 1)
    assert step.hidden.dtype == step.logits.dtype == torch.bfloat16
    assert step.attention.block_tables.dtype == torch.int32
    others = (step.token_ids, step.positions, step.logit_rows, step.attention.query_start)
    assert {buffer.dtype for buffer in others} == {torch.int64}


def test_positions_and_the_number_of_tokens_are_shared_with_the_attention_batch():
    step = make_buffers(architecture(), CAPACITY, CacheLayout.of(()), 1)
    assert step.attention.positions is step.positions
    assert step.attention.num_tokens is step.num_tokens
    assert step.num_tokens is not step.num_rows


def test_two_steps_share_nothing():
    first, second = (
        make_buffers(architecture(), CAPACITY, CacheLayout.of(()), 1) for _ in range(2)
    )
    first.token_ids.fill_(1)
    first.num_tokens.value = 3
    assert second.token_ids.sum() == 0
    assert second.num_tokens.value == 0


def test_each_layer_gets_a_cache_of_its_own_spec():
    layout = CacheLayout.of([CacheSpec(2, 8), CacheSpec(1, 8)])
    step = make_buffers(architecture(), CAPACITY, layout, 3)
    assert [cache.shape for cache in step.caches] == [(2, 48, 2, 8), (2, 48, 1, 8)]
    assert step.batches == [step.attention, step.attention]
    assert layout.bytes_per_block(SimpleAttention(), 16) == 2 * 4 * 16 * 8 * (2 + 1)


def test_layers_of_equal_reach_share_tables_and_groups_share_memory():
    full, window = CacheSpec(2, 8), CacheSpec(2, 8, reach=3)
    state = StateSpec((2, 4))
    layout = CacheLayout.of([window, full, window, state, state, full])
    assert layout.groups == (CacheGroup(3), CacheGroup(None), CacheGroup(1))
    assert layout.group_of == (0, 1, 0, 2, 2, 1)
    assert layout.memory_of == (0, 0, 1, 2, 3, 1)
    step = make_buffers(architecture(), CAPACITY, layout, 3)
    assert step.caches[0] is step.caches[1]
    assert step.caches[0] is not step.caches[2]
    assert step.caches[3].states.shape == (3, 2, 4)
    assert step.caches[3].batch is step.groups[2]
    assert step.groups[0].seq_lens is step.groups[1].seq_lens
    assert step.groups[0].slots is not step.groups[1].slots
    assert layout.bytes_per_block(SimpleAttention(), 16) == 2 * (2 * 4 * 16 * 8 * 2 + 4 * 8)


@pytest.mark.parametrize(
    ("kinds", "num_groups", "num_memories"),
    [
        ("wwwww.", 6, 1),  # five tables of windows; a block of any group takes one layer's bytes
        ("wwwww.wwwww.wwwww.wwwww.ww", 7, 4),  # Gemma 3 1b: 22 windows in groups of 4
        ("w.w.w.w.", 2, 4),
        ("wwww", 1, 4),
        ("....", 1, 4),
        ("w" * 30 + ".", 7, 5),  # no more than 8 tables
    ],
)
def test_a_block_takes_as_many_layers_as_the_rarest_reach_has(kinds, num_groups, num_memories):
    layout = CacheLayout.of([CacheSpec(2, 8, reach=3 if kind == "w" else None) for kind in kinds])
    assert len(layout.groups) == num_groups
    assert len(set(layout.memory_of)) == num_memories
    assert layout.bytes_per_block(SimpleAttention(), 16) == num_memories * (2 * 4 * 16 * 8 * 2)
    places = set(zip(layout.group_of, layout.memory_of, strict=True))
    assert len(places) == len(kinds)  # no two layers of a group share memory
    for spec, group in zip(layout.specs, layout.group_of, strict=True):
        assert layout.groups[group].reach == spec.reach


def test_a_part_of_a_layout_keeps_the_numbers_of_the_whole():
    full, window, small = (CacheSpec(n, 8, reach=reach) for n, reach in ((2, None), (2, 3), (1, 3)))
    layout = CacheLayout.of([full, full, window, small])
    part = layout.part(2, 4)
    assert part.groups == layout.groups
    assert part.group_of == (1, 1)
    assert part.memory_of == (0, 2)
