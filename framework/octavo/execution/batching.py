"""From a plan to the flat batch of a step: ids, positions, slots, lengths, tables.

    plan        A: 3 tokens at 5     B: 1 token at 9       C: 2 tokens at 0
    flat        A5 A6 A7             B9                    C0 C1
    query_start 0                    3                     4        6
    seq_lens    8                    10                    2

Knows plans, rows and the step's buffers. Does not know models or sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from octavo.engine.plan import RowAdvance
    from octavo.execution.rows import Rows
    from octavo.interfaces.architecture import StepBuffers


@dataclass(slots=True)
class FlatBatch:
    """Where the results of a step are to be found.

    For row i of the logits: `sampled[i]` is the index of the advance it belongs to,
    `sampled_rows[i]` that one's batch row, and `offsets[i]` how many of its drafts come before.
    `query_start`: int64 [advances + 1]. `has_drafts`: whether any offset is not 0.
    """

    sampled: np.ndarray
    sampled_rows: np.ndarray
    offsets: np.ndarray
    query_start: np.ndarray
    has_drafts: bool


class BatchBuilder:
    """Writes plans into the persistent step buffers, through numpy views made once."""

    def __init__(self, rows: Rows, buffers: StepBuffers) -> None:
        self._rows = rows
        self._buffers = buffers
        batch = buffers.attention
        self._token_ids = buffers.token_ids.numpy()
        self._positions = buffers.positions.numpy()
        self._logit_rows = buffers.logit_rows.numpy()
        self._query_start = batch.query_start.numpy()
        self._seq_lens = batch.seq_lens.numpy()
        self._block_tables = [group.block_tables.numpy() for group in buffers.groups]
        self._slots = [group.slots.numpy() for group in buffers.groups]
        self._arange = np.arange(len(self._token_ids), dtype=np.int64)

    def build(self, advances: list[RowAdvance]) -> FlatBatch:
        """Fill the buffers for a step. Block tables of the rows must be up to date."""
        rows = np.array([advance.row for advance in advances], dtype=np.int64)
        starts = np.array([advance.start for advance in advances], dtype=np.int64)
        lengths = np.array([advance.num_tokens for advance in advances], dtype=np.int64)
        is_sampling = np.array([advance.is_sampling for advance in advances], dtype=bool)
        num_seqs = len(advances)
        query_start = self._query_start[: num_seqs + 1]
        np.cumsum(lengths, out=query_start[1:])
        num_tokens = int(query_start[-1])
        self._fill_tokens(rows, starts, lengths, query_start, num_tokens)
        np.add(starts, lengths, out=self._seq_lens[:num_seqs])
        for mine, theirs in zip(self._block_tables, self._rows.block_tables, strict=True):
            mine[:num_seqs] = theirs[rows]
        sampled = np.flatnonzero(is_sampling)
        has_drafts = any(advance.drafts for advance in advances)
        if has_drafts:
            sampled, offsets, tokens = _draft_rows(advances, sampled, query_start)
        else:
            offsets = np.zeros(len(sampled), dtype=np.int64)
            tokens = query_start[1:][sampled] - 1
        self._logit_rows[: len(sampled)] = tokens
        buffers = self._buffers
        buffers.num_tokens.value = num_tokens
        buffers.num_rows.value = len(sampled)
        buffers.attention.num_seqs.value = num_seqs
        return FlatBatch(sampled, rows[sampled], offsets, query_start.copy(), has_drafts)

    def _fill_tokens(
        self,
        rows: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
        query_start: np.ndarray,
        num_tokens: int,
    ) -> None:
        data, size = self._rows, self._buffers.attention.block_size
        positions = self._positions[:num_tokens]
        if num_tokens == len(rows):  # decodes only
            token_rows = rows
            positions[:] = starts
        else:
            token_rows = np.repeat(rows, lengths)
            np.subtract(self._arange[:num_tokens], np.repeat(query_start[:-1], lengths), positions)
            positions += np.repeat(starts, lengths)
        self._token_ids[:num_tokens] = data.token_ids[token_rows, positions]
        places, offsets = np.divmod(positions, size)
        for slots, tables in zip(self._slots, data.block_tables, strict=True):
            np.multiply(tables[token_rows, places], size, out=slots[:num_tokens], dtype=np.int64)
            slots[:num_tokens] += offsets


def _draft_rows(
    advances: list[RowAdvance], sampled: np.ndarray, query_start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each row of logits its advance, its draft position and its flat token."""
    counts = np.array([len(advances[index].drafts) + 1 for index in sampled.tolist()])
    offsets = np.concatenate([np.arange(count) for count in counts])
    owners = np.repeat(sampled, counts)
    last = query_start[1:][owners] - np.repeat(counts, counts)
    return owners, offsets, last + offsets
