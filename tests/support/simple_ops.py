"""The plainest op set and attention there can be: a second implementation for tests.

Float32 torch, one expression each, written from the interfaces' docstrings alone. A test that
passes here and fails on the real ones has found a fault in those.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from octavo.interfaces.attention import (
    Attention,
    AttentionBatch,
    AttentionSpec,
    CacheSpec,
    StateCache,
)
from octavo.interfaces.ops import Count, OpSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.architecture import RotaryConfig
    from octavo.interfaces.weights import WeightBlocks


def as_tensor(blocks: WeightBlocks) -> Tensor:
    return torch.from_numpy(blocks.data.copy().view(np.float32).reshape(blocks.shape))


class SimpleOps(OpSet):
    """One torch expression for each operation; cannot sample."""

    block_types = frozenset({"F32"})

    def pack_linear(self, blocks: Sequence[WeightBlocks]) -> Tensor:
        return torch.cat([as_tensor(block) for block in blocks])

    def pack_embedding(self, blocks: WeightBlocks) -> Tensor:
        return as_tensor(blocks)

    def pack_vector(self, blocks: Sequence[WeightBlocks]) -> Tensor:
        return torch.cat([as_tensor(block) for block in blocks])

    def embedding(self, out: Tensor, ids: Tensor, weight: Tensor, rows: Count) -> None:
        n = rows.value
        out[:n] = weight[ids[:n]]

    def rms_norm(self, out: Tensor, x: Tensor, weight: Tensor, eps: float, rows: Count) -> None:
        n = rows.value
        out[:n] = functional.rms_norm(x[:n], (x.shape[-1],), weight, eps)

    def add_rms_norm(  # noqa: PLR0917 - the interface's
        self, out: Tensor, residual: Tensor, delta: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> None:
        n = rows.value
        residual[:n] += delta[:n]
        self.rms_norm(out, residual, weight, eps, rows)

    def linear(
        self, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, rows: Count
    ) -> None:
        # one row at a time, so that a row's bits do not depend on how many there are
        for row in range(rows.value):
            out[row] = functional.linear(x[row], weight, bias)

    def rotary_table(self, config: RotaryConfig, max_positions: int) -> Tensor:
        angles = [_angles(config, position) for position in range(max_positions)]
        both = torch.cat([torch.stack(angles)] * 2, dim=-1)
        return torch.stack([both.cos(), both.sin()]) * _amplitude(config)

    def rotary(self, q: Tensor, k: Tensor, positions: Tensor, table: Tensor, rows: Count) -> None:
        n = rows.value
        cos, sin = table[:, positions[:n], None]  # [n, 1, head_dim] each
        for x in (q[:n], k[:n]):
            low, high = x.chunk(2, dim=-1)
            x.copy_(x * cos + torch.cat([-high, low], dim=-1) * sin)

    def silu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        gate, up = gate_up[: rows.value].chunk(2, dim=-1)
        out[: rows.value] = functional.silu(gate) * up

    def gelu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        gate, up = gate_up[: rows.value].chunk(2, dim=-1)
        out[: rows.value] = functional.gelu(gate, approximate="tanh") * up

    def scale(self, x: Tensor, factor: float, rows: Count) -> None:
        x[: rows.value] *= factor

    def soft_cap(self, x: Tensor, cap: float, rows: Count) -> None:
        x[: rows.value] = cap * torch.tanh(x[: rows.value] / cap)

    def linear_attention(  # noqa: PLR0917 - the interface's
        self, out: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, cache: StateCache
    ) -> None:
        batch = cache.batch
        for seq in range(batch.num_seqs.value):
            first, stop = batch.query_start[seq : seq + 2].tolist()
            end, blocks = int(batch.seq_lens[seq]), batch.block_tables[seq].tolist()
            for token, position in zip(
                range(first, stop), range(end - (stop - first), end), strict=True
            ):
                state = cache.states[blocks[(position - 1) // batch.block_size]]
                if position == 0:
                    state = torch.zeros_like(state)
                state = decay[:, None, None] * state + k[token][:, :, None] * v[token][:, None]
                cache.states[blocks[position // batch.block_size]] = state
                out[token] = torch.einsum("hk,hkv->hv", q[token], state)

    def gather_rows(self, out: Tensor, x: Tensor, index: Tensor, rows: Count) -> None:
        out[: rows.value] = x[index[: rows.value]]

    def uniforms(self, *args: Any) -> np.ndarray:
        raise NotImplementedError

    def sample(self, *args: Any) -> Any:
        raise NotImplementedError

    def logprobs(self, *args: Any) -> Any:
        raise NotImplementedError


def _angles(config: RotaryConfig, position: int) -> Tensor:
    """Return the angles [head_dim / 2] of one position."""
    scaling, dim, theta = config.scaling, config.head_dim, config.theta
    kind, factor = scaling["rope_type"], scaling.get("factor", 1.0)
    original = config.original_max_positions or 0
    if kind == "dynamic":
        ratio = factor * max(position + 1, original) / original - (factor - 1)
        theta *= ratio ** (dim / (dim - 2))
    inverse = theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if config.frequency_factors is not None:
        inverse = inverse / torch.tensor(config.frequency_factors, dtype=torch.float64)
    if kind == "linear":
        inverse = inverse / factor
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = original * inverse / (2 * math.pi)
        share = ((turns - low) / (high - low)).clamp(0, 1)
        inverse = inverse * (share + (1 - share) / factor)
    if kind == "yarn":

        def dimension(num_turns: float) -> float:
            return dim * math.log(original / (num_turns * 2 * math.pi)) / (2 * math.log(theta))

        first = max(math.floor(dimension(scaling.get("beta_fast") or 32)), 0)
        last = min(math.ceil(dimension(scaling.get("beta_slow") or 1)), dim - 1)
        ramp = ((torch.arange(dim // 2) - first) / max(last - first, 0.001)).clamp(0, 1)
        inverse = inverse * (1 - ramp + ramp / factor)
    return (inverse * position).to(torch.float32)


def _amplitude(config: RotaryConfig) -> float:
    if config.scaling["rope_type"] != "yarn":
        return 1.0
    factor = float(config.scaling["factor"])
    return float(config.scaling.get("attention_factor") or 0.1 * math.log(factor) + 1.0)


class SimpleAttention(Attention):
    """Attention query by query; a cache is one tensor [2, slots, kv_heads, head_dim]."""

    def bytes_per_block(self, spec: CacheSpec, block_size: int) -> int:
        return 2 * 4 * block_size * spec.num_kv_heads * spec.head_dim

    def allocate(self, spec: CacheSpec, num_blocks: int, block_size: int) -> Tensor:
        # NaN shows at once when a slot is read that nobody wrote
        size = (2, num_blocks * block_size, spec.num_kv_heads, spec.head_dim)
        return torch.full(size, torch.nan)

    def prepare(self, batch: AttentionBatch) -> None:
        """Leave, for each live token, the slots of all positions up to its own."""
        batch.prepared = []
        for seq in range(batch.num_seqs.value):
            length = int(batch.seq_lens[seq])
            position = torch.arange(length)
            block = batch.block_tables[seq, position // batch.block_size].long()
            slots = block * batch.block_size + position % batch.block_size
            num_queries = int(batch.query_start[seq + 1] - batch.query_start[seq])
            batch.prepared += [slots[: n + 1] for n in range(length - num_queries, length)]

    def write(self, cache: Tensor, k: Tensor, v: Tensor, batch: AttentionBatch) -> None:
        n = batch.num_tokens.value
        cache[0, batch.slots[:n]] = k[:n]
        cache[1, batch.slots[:n]] = v[:n]

    def forward(
        self, out: Tensor, q: Tensor, cache: Tensor, spec: AttentionSpec, batch: AttentionBatch
    ) -> None:
        group = spec.num_heads // spec.num_kv_heads
        for token, slots in enumerate(batch.prepared):
            seen = slots if spec.window is None else slots[-spec.window :]
            k, v = (kv[seen].repeat_interleave(group, dim=1) for kv in cache)
            scores = torch.einsum("hd,shd->hs", q[token], k) * spec.scale
            if spec.softcap is not None:
                scores = spec.softcap * torch.tanh(scores / spec.softcap)
            out[token] = torch.einsum("hs,shd->hd", scores.softmax(-1), v)
