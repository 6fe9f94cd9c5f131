"""Linear attention with a decay per head over states kept by block, in plain torch.

    S[t] = decay * S[t - 1] + k[t] v[t]^T          out[t] = q[t] S[t]

(retention of Sun et al. 2023, lightning attention of Qin et al. 2024). A block of positions has
one state, which stands for its last token so far: so a sequence is cut into pieces that end where
a block or the step does, each piece starts from the state of the block before it, and what is left
in its own block is where the next step or another request with the same prefix goes on.

Cut at the ends of blocks, in whatever steps and beside whatever other sequences, the results have
the same bits, because the pieces are the same. A step that ends inside a block cuts a piece in
two, which changes the order of sums: the results are then equal up to rounding only.

Knows tensors, blocks and positions. Does not know layers, requests or who frees a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from octavo_kernels.reference.attention_plan import RaggedBatch


@dataclass(frozen=True, slots=True)
class Projections:
    """Queries and keys [n, heads, d_k] and values [n, heads, d_v] of a step's n tokens."""

    q: Tensor
    k: Tensor
    v: Tensor

    def of(self, tokens: slice | Tensor) -> Projections:
        """Return those of some tokens."""
        return Projections(self.q[tokens], self.k[tokens], self.v[tokens])


def linear_attention(
    out: Tensor, tokens: Projections, decay: Tensor, states: Tensor, batch: RaggedBatch
) -> None:
    """Set out [n, heads, d_v], and leave the states at the ends of blocks and of the step.

    decay: [heads]; states: [blocks, heads, d_k, d_v], whose dtype is what is computed in. A
    sequence that starts at position p reads the block of position p - 1, and no state for p = 0.
    """
    decay = decay.to(states.dtype)
    starts, ends = batch.query_start.tolist(), batch.seq_lens.tolist()
    single, factors = [], _Factors(decay)
    for index, end in enumerate(ends):
        rows = slice(starts[index], starts[index + 1])
        if rows.stop - rows.start == 1:
            single.append(index)
            continue
        table = batch.block_tables[index].tolist()
        _run(
            out[rows],
            tokens.of(rows),
            states,
            _Place(end - (rows.stop - rows.start), table, batch.block_size),
            factors,
        )
    if single:
        _run_singles(out, tokens, decay, states, batch, torch.tensor(single))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the tokens of a sequence stand: the position of the first, and the blocks."""

    start: int
    table: list[int]
    block_size: int

    def block(self, position: int) -> int:
        """Return the block of a position."""
        return self.table[position // self.block_size]


class _Factors:
    """Powers of the decays, by the length of a piece."""

    def __init__(self, decay: Tensor) -> None:
        self.decay = decay
        self._by_length: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, length: int) -> tuple[Tensor, Tensor]:
        """Return decay ** i for i = 0 .. length [heads, length + 1, 1], and what lies between.

        The second: decay ** (i - j) for j <= i, else 0: [heads, length, length].
        """
        if length not in self._by_length:
            steps = torch.arange(length + 1)
            powers = self.decay[:, None] ** steps  # [heads, length + 1]
            between = (steps[:length, None] - steps[:length]).clamp_(min=0)
            self._by_length[length] = powers[:, :, None], powers[:, between].tril()
        return self._by_length[length]


def _run(
    out: Tensor, tokens: Projections, states: Tensor, place: _Place, factors: _Factors
) -> None:
    """Run several tokens of one sequence, piece by piece."""
    position, num_tokens = place.start, out.shape[0]
    state = states[place.block(position - 1)] if position else torch.zeros_like(states[0])
    done = 0
    while done < num_tokens:
        length = min(place.block_size - position % place.block_size, num_tokens - done)
        piece = tokens.of(slice(done, done + length))
        if length == 1:
            result, state = _advance(piece, factors.decay, state[None])
            state = state[0]
        else:
            result, state = _advance_piece(piece, state, *factors(length))
        out[done : done + length] = result
        states[place.block(position)] = state
        position, done = position + length, done + length


def _advance_piece(
    piece: Projections, state: Tensor, powers: Tensor, between: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results [n, heads, d_v] of a piece and the state after it.

    What lies before the piece comes from `state` [heads, d_k, d_v]; powers, between: `_Factors`.
    """
    # copies, so that the products find the same strides and alignment wherever a piece lies
    q, k, v = (
        part.transpose(0, 1).to(state.dtype, copy=True).contiguous()
        for part in (piece.q, piece.k, piece.v)
    )  # [heads, n, d]
    result = torch.matmul(q * powers[:, 1:], state)
    result += torch.matmul(torch.matmul(q, k.transpose(1, 2)).mul_(between), v)
    k *= powers[:, :-1].flip(1)
    state = torch.matmul(k.transpose(1, 2), v).add_(state * powers[:, -1:])
    return result.transpose(0, 1), state


def _run_singles(  # noqa: PLR0917 - as `linear_attention`, and who
    out: Tensor,
    tokens: Projections,
    decay: Tensor,
    states: Tensor,
    batch: RaggedBatch,
    sequences: Tensor,
) -> None:
    """Run the sequences [s] that have one token each, together."""
    rows = batch.query_start[sequences]
    position = batch.seq_lens[sequences] - 1
    tables = batch.block_tables[sequences].long()
    size = batch.block_size
    before = tables.gather(1, (position - 1).clamp_(min=0)[:, None] // size)[:, 0]
    state = states[before]
    state[position == 0] = 0
    result, state = _advance(tokens.of(rows), decay, state)
    out[rows] = result.to(out.dtype)
    states[tables.gather(1, position[:, None] // size)[:, 0]] = state


def _advance(tokens: Projections, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Advance states [s, heads, d_k, d_v] by one token each; return results and states.

    Products and sums one by one, whose bits do not depend on how many sequences there are.
    """
    q, k, v = (part.to(state.dtype) for part in (tokens.q, tokens.k, tokens.v))
    state = state * decay[:, None, None] + k[..., None] * v[:, :, None]
    return (q[..., None] * state).sum(2), state
