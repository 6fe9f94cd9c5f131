"""Makes the persistent buffers of a step: the one place where their sizes and dtypes are set.

Knows capacities. Does not know which requests are in a step, nor what the numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from octavo.interfaces.architecture import StepBuffers
from octavo.interfaces.attention import AttentionBatch
from octavo.interfaces.ops import Count

if TYPE_CHECKING:
    from octavo.execution.cache_layout import CacheLayout
    from octavo.interfaces.architecture import Architecture


@dataclass(frozen=True, slots=True)
class StepCapacity:
    """The most that one step can hold. `max_blocks` is per sequence."""

    max_tokens: int
    max_rows: int
    max_seqs: int
    max_blocks: int
    block_size: int

    @property
    def max_positions(self) -> int:
        """Return the longest sequence that a block table can hold."""
        return self.max_blocks * self.block_size


def make_buffers(
    architecture: Architecture, capacity: StepCapacity, layout: CacheLayout, num_blocks: int
) -> StepBuffers:
    """Return the buffers of a step, all zero, and the caches of the model's layers.

    Zero is safe everywhere: token 0 at position 0 is valid, and block 0 is the null block. The
    groups of layers share everything but tables and slots; `num_blocks` counts the null block.
    """
    num_tokens = Count()
    positions = torch.zeros(capacity.max_tokens, dtype=torch.int64)
    dtype: torch.dtype = getattr(torch, architecture.ops.activation_dtype)
    first = AttentionBatch(
        num_seqs=Count(),
        num_tokens=num_tokens,
        query_start=torch.zeros(capacity.max_seqs + 1, dtype=torch.int64),
        seq_lens=torch.zeros(capacity.max_seqs, dtype=torch.int64),
        block_tables=torch.zeros(capacity.max_seqs, capacity.max_blocks, dtype=torch.int32),
        positions=positions,
        slots=torch.zeros(capacity.max_tokens, dtype=torch.int64),
        block_size=capacity.block_size,
    )
    others = [
        replace(
            first,
            block_tables=torch.zeros_like(first.block_tables),
            slots=torch.zeros_like(first.slots),
        )
        for _ in layout.groups[1:]
    ]
    groups = [first, *others]
    batches = [groups[group] for group in layout.group_of]
    return StepBuffers(
        num_tokens=num_tokens,
        num_rows=Count(),
        token_ids=torch.zeros(capacity.max_tokens, dtype=torch.int64),
        positions=positions,
        hidden=torch.zeros(capacity.max_tokens, architecture.hidden_size, dtype=dtype),
        logit_rows=torch.zeros(capacity.max_rows, dtype=torch.int64),
        logits=torch.zeros(capacity.max_rows, architecture.vocab_size, dtype=dtype),
        groups=groups,
        batches=batches,
        caches=layout.allocate(architecture.attention, num_blocks, batches),
    )
