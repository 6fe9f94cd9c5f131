"""Linear attention by blocks against the plain recurrence in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import silu
from transformers import MiniMaxConfig
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

from octavo_kernels.reference.attention_plan import RaggedBatch
from octavo_kernels.reference.linear_attention import Projections, linear_attention

HEADS, KEY_DIM, VALUE_DIM = 3, 8, 6
DECAY = torch.tensor([0.5, 0.9, 1.0])
LENGTHS = (1, 7, 23, 64, 40)


def recurrence(tokens: Projections, decay: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return results [n, heads, d_v] and the states after each token, in float64: the oracle."""
    q, k, v = tokens.q.double(), tokens.k.double(), tokens.v.double()
    state = torch.zeros(q.shape[1], q.shape[2], v.shape[2], dtype=torch.float64)
    results, states = [], []
    for t in range(len(q)):
        state = decay.double()[:, None, None] * state + torch.einsum("hk,hv->hkv", k[t], v[t])
        results.append(torch.einsum("hk,hkv->hv", q[t], state))
        states.append(state)
    return torch.stack(results), torch.stack(states)


class Case:
    """Sequences over shuffled blocks, whose states start as NaN, run in steps of any chunks."""

    def __init__(self, block_size: int, lengths=LENGTHS, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.block_size, self.lengths = block_size, lengths

        def noise(length: int, dim: int) -> torch.Tensor:
            return torch.randn(length, HEADS, dim, generator=generator)

        self.tokens = [
            Projections(noise(n, KEY_DIM), noise(n, KEY_DIM), noise(n, VALUE_DIM)) for n in lengths
        ]
        num_blocks = [-(-n // block_size) for n in lengths]
        order = torch.randperm(sum(num_blocks), generator=generator) + 1
        self.tables = torch.zeros(len(lengths), max(num_blocks), dtype=torch.int32)
        for row, ids in zip(self.tables, order.split(num_blocks), strict=True):
            row[: len(ids)] = ids
        shape = sum(num_blocks) + 1, HEADS, KEY_DIM, VALUE_DIM
        self.states = torch.full(shape, math.nan)
        self.done = [0] * len(lengths)
        self.results: list[list[torch.Tensor]] = [[] for _ in lengths]

    def step(self, shares: dict[int, int]) -> None:
        """Advance sequences by so many tokens each, as one batch."""
        parts = [
            self.tokens[i].of(slice(self.done[i], self.done[i] + n)) for i, n in shares.items()
        ]
        flat = Projections(*(torch.cat([getattr(p, x) for p in parts]) for x in "qkv"))
        for i, n in shares.items():
            self.done[i] += n
        counts = torch.tensor([0, *shares.values()])
        rows = list(shares)
        batch = RaggedBatch(
            counts.cumsum(0),
            torch.tensor([self.done[i] for i in rows]),
            self.tables[rows],
            self.block_size,
        )
        out = torch.empty(len(flat.q), HEADS, VALUE_DIM)
        linear_attention(out, flat, DECAY, self.states, batch)
        for i, result in zip(rows, out.split(list(shares.values())), strict=True):
            self.results[i].append(result)

    def run(self, *chunks: int) -> list[torch.Tensor]:
        """Run all sequences to their ends in turns of the chunks; return their results."""
        turn = 0
        while any(left := [n - d for n, d in zip(self.lengths, self.done, strict=True)]):
            chunk = chunks[turn % len(chunks)]
            self.step({i: min(chunk, n) for i, n in enumerate(left) if n})
            turn += 1
        return [torch.cat(results) for results in self.results]


CHUNKS = [(100,), (1,), (5,), (3, 1, 8)]


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("block_size", [1, 4, 16, 100])
def test_any_chunks_and_blocks_equal_the_recurrence(block_size, chunks):
    case = Case(block_size)
    for result, tokens in zip(case.run(*chunks), case.tokens, strict=True):
        expected, _ = recurrence(tokens, DECAY)
        torch.testing.assert_close(result.double(), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_each_block_keeps_the_state_after_its_last_token(block_size, chunks):
    case = Case(block_size)
    case.run(*chunks)
    for table, tokens in zip(case.tables, case.tokens, strict=True):
        _, states = recurrence(tokens, DECAY)
        last = [min(end, len(states)) - 1 for end in range(block_size, len(states) + block_size)]
        expected = states[last[::block_size]]
        kept = case.states[table[: len(expected)].long()]
        torch.testing.assert_close(kept.double(), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_cut_at_the_ends_of_blocks_the_bits_are_the_same(block_size):
    whole = Case(block_size)
    expected = whole.run(100)
    for chunk in (block_size, 3 * block_size):
        case = Case(block_size)
        for result, one in zip(case.run(chunk), expected, strict=True):
            assert torch.equal(result, one)
        assert torch.equal(case.states[1:], whole.states[1:])


@pytest.mark.parametrize("chunk", [1, 3, 16, 100])
def test_who_else_is_in_the_batch_changes_no_bit(chunk):
    together = Case(4)
    expected = together.run(chunk)
    alone = Case(4)
    for i, length in enumerate(LENGTHS):
        while alone.done[i] < length:
            alone.step({i: min(chunk, length - alone.done[i])})
        assert torch.equal(torch.cat(alone.results[i]), expected[i])
    assert torch.equal(alone.states[1:], together.states[1:])


def test_a_step_touches_its_own_blocks_alone():
    case = Case(4)
    case.run(6)
    before = case.states.clone()
    case.done = [0, 0, 6, 0, 9]
    case.step({2: 3, 4: 1})
    touched = {int(case.tables[2, 1]), int(case.tables[2, 2]), int(case.tables[4, 2])}
    for block in range(1, len(before)):
        assert torch.equal(case.states[block], before[block]) or block in touched


def test_a_state_goes_on_from_where_another_sequence_with_the_prefix_left_it():
    """A snapshot at a block's end serves whoever has the block in its table."""
    case = Case(4, lengths=(12, 19))
    for name in "qkv":
        getattr(case.tokens[1], name)[:12] = getattr(case.tokens[0], name)
    case.step({0: 12})
    case.tables[1, 2] = case.tables[0, 2]
    case.done[1] = 12
    case.step({1: 7})
    expected, _ = recurrence(case.tokens[1], DECAY)
    torch.testing.assert_close(case.results[1][0].double(), expected[12:], atol=2e-5, rtol=2e-5)


def test_the_dtype_of_the_states_is_what_is_computed_in():
    case = Case(4)
    case.states = case.states.double()
    results = case.run(5)
    for result, tokens, table in zip(results, case.tokens, case.tables, strict=True):
        expected, states = recurrence(tokens, DECAY)
        torch.testing.assert_close(result.double(), expected, atol=1e-5, rtol=1e-6)
        last = case.states[table[(len(states) - 1) // 4]]
        torch.testing.assert_close(last, states[-1], atol=1e-12, rtol=1e-12)


def test_it_is_the_lightning_attention_of_minimax_in_transformers():
    length, heads, dim = 37, 4, 8
    config = MiniMaxConfig(
        hidden_size=16, num_attention_heads=heads, head_dim=dim, num_hidden_layers=2, block_size=16
    )
    torch.manual_seed(0)
    layer = MiniMaxLightningAttention(config, 0)
    x = torch.randn(1, length, 16)
    with torch.no_grad():
        layer.output_gate.weight.zero_()  # a gate of one half everywhere
        layer.out_proj.weight = torch.nn.Parameter(torch.eye(heads * dim)[:16])
        (theirs, state) = layer(x, None, None)
        qkv = silu(layer.qkv_proj(x[0])).view(length, heads, 3 * dim)
        out = torch.empty(length, heads, dim)
        states = torch.zeros(4, heads, dim, dim)
        linear_attention(
            out,
            Projections(*qkv.split(dim, dim=2)),
            torch.exp(-layer.slope_rate.view(-1)),
            states,
            RaggedBatch(
                torch.tensor([0, length]), torch.tensor([length]), torch.tensor([[3, 1, 2]]), 16
            ),
        )
        ours = layer.norm(out.view(length, -1))[:, :16] / 2
    torch.testing.assert_close(ours, theirs[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(states[2], state[0], atol=1e-5, rtol=1e-5)
