"""Runs an architecture by hand: sequences, blocks and buffers without engine or executor.

Knows buffers and tables. Does not know requests, nor which family it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from octavo.execution.buffers import StepCapacity, make_buffers
from octavo.execution.cache_layout import CacheLayout
from octavo.execution.recording import recording

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.interfaces.architecture import Architecture

    #: a sequence, and its next tokens
    Chunk: TypeAlias = tuple[int, Sequence[int]]

CAPACITY = StepCapacity(max_tokens=64, max_rows=64, max_seqs=4, max_blocks=12, block_size=4)


class HandRunner:
    """Feeds tokens of sequences 0..3 to a loaded architecture and returns all their logits.

    Blocks are dealt out in a shuffled order, so that no physical order can be relied on.
    """

    def __init__(
        self, architecture: Architecture, capacity: StepCapacity = CAPACITY, seed: int = 0
    ) -> None:
        self.architecture = architecture
        self.capacity = capacity
        layout = CacheLayout.of(architecture.cache_specs())
        num_used = len(layout.groups) * capacity.max_seqs * capacity.max_blocks
        architecture.prepare(capacity.max_tokens, capacity.max_rows, capacity.max_positions)
        self.step_buffers = make_buffers(architecture, capacity, layout, num_used + 1)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(num_used, generator=generator) + 1
        shape = len(layout.groups), capacity.max_seqs, capacity.max_blocks
        self.tables = order.view(shape).to(torch.int32)
        self.lengths = [0] * capacity.max_seqs

    def fill(self, chunks: Sequence[Chunk]) -> None:
        """Write a step into the buffers: for each (sequence, its next tokens)."""
        step, batch = self.step_buffers, self.step_buffers.attention
        for group in step.groups:
            group.block_tables.zero_()
        start = 0
        for row, (seq, tokens) in enumerate(chunks):
            end, done = start + len(tokens), self.lengths[seq]
            positions = torch.arange(done, done + len(tokens))
            step.token_ids[start:end] = torch.tensor(tokens)
            step.positions[start:end] = positions
            for group, tables in zip(step.groups, self.tables, strict=True):
                blocks = tables[seq, positions // batch.block_size]
                group.slots[start:end] = blocks * batch.block_size + positions % batch.block_size
            batch.query_start[row], batch.query_start[row + 1] = start, end
            self.lengths[seq] = done + len(tokens)
            batch.seq_lens[row] = self.lengths[seq]
            used = -(-self.lengths[seq] // batch.block_size)
            for group, tables in zip(step.groups, self.tables, strict=True):
                group.block_tables[row, :used] = tables[seq, :used]
            start = end
        step.logit_rows[:start] = torch.arange(start)
        step.num_tokens.value = step.num_rows.value = start
        batch.num_seqs.value = len(chunks)

    def run(
        self, chunks: Sequence[Chunk], execute: Callable[[], Any] | None = None
    ) -> list[torch.Tensor]:
        """Run one step and return logits [tokens, vocab] for each chunk.

        `execute` replaces the calls of the architecture, e.g. by a replay.
        """
        self.fill(chunks)
        (execute or self.direct)()
        lengths = [len(tokens) for _, tokens in chunks]
        return list(torch.split(self.step_buffers.logits[: sum(lengths)].clone(), lengths))

    def run_recorded(self, steps: Sequence[Sequence[Chunk]]) -> list[list[torch.Tensor]]:
        """Run steps, the first recorded and the others replayed; as `run`, for each."""
        with recording(self.architecture) as record:
            logits = [self.run(steps[0])]
        return logits + [self.run(chunks, execute=record.replay) for chunks in steps[1:]]

    def direct(self) -> None:
        """Call the architecture itself."""
        self.architecture.forward(self.step_buffers)
        self.architecture.logits(self.step_buffers)
