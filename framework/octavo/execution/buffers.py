"""Makes the persistent buffers of a step: the one place where their sizes and dtypes are set.

Knows capacities. Does not know which requests are in a step, nor what the numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from octavo.interfaces.architecture import StepBuffers
from octavo.interfaces.attention import AttentionBatch
from octavo.interfaces.ops import Count

if TYPE_CHECKING:
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
    architecture: Architecture, capacity: StepCapacity, caches: list[Any]
) -> StepBuffers:
    """Return the buffers of a step, all zero, for a model and its layers' caches.

    Zero is safe everywhere: token 0 at position 0 is valid, and block 0 is the null block. The
    tokens' positions and their number are shared with the attention batch, not copied.
    """
    num_tokens = Count()
    positions = torch.zeros(capacity.max_tokens, dtype=torch.int64)
    dtype: torch.dtype = getattr(torch, architecture.ops.activation_dtype)
    batch = AttentionBatch(
        num_seqs=Count(),
        num_tokens=num_tokens,
        query_start=torch.zeros(capacity.max_seqs + 1, dtype=torch.int64),
        seq_lens=torch.zeros(capacity.max_seqs, dtype=torch.int64),
        block_tables=torch.zeros(capacity.max_seqs, capacity.max_blocks, dtype=torch.int32),
        positions=positions,
        slots=torch.zeros(capacity.max_tokens, dtype=torch.int64),
        block_size=capacity.block_size,
    )
    return StepBuffers(
        num_tokens=num_tokens,
        num_rows=Count(),
        token_ids=torch.zeros(capacity.max_tokens, dtype=torch.int64),
        positions=positions,
        hidden=torch.zeros(capacity.max_tokens, architecture.hidden_size, dtype=dtype),
        logit_rows=torch.zeros(capacity.max_rows, dtype=torch.int64),
        logits=torch.zeros(capacity.max_rows, architecture.vocab_size, dtype=dtype),
        attention=batch,
        caches=caches,
    )


def allocate_caches(architecture: Architecture, num_blocks: int, block_size: int) -> list[Any]:
    """Return the caches of all layers, `num_blocks` blocks each, the null block included."""
    attention = architecture.attention
    return [attention.allocate(spec, num_blocks, block_size) for spec in architecture.cache_specs()]


def cache_bytes_per_block(architecture: Architecture, block_size: int) -> int:
    """Return the bytes that one block takes in all layers together."""
    attention = architecture.attention
    return sum(attention.bytes_per_block(spec, block_size) for spec in architecture.cache_specs())
