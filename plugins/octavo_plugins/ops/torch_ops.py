"""The `torch` op set: plain torch on any machine, and the reference for all others.

Weights are decoded to float32 once, at load. Knows the interfaces of ops and the reference
kernels. Does not know layers, models or requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.ops import Count, OpSet
from octavo.interfaces.sampler import LogprobOutputs, SamplingOutputs
from octavo.interfaces.weights import not_finite
from octavo_kernels.reference.activation import gelu_mul, silu_mul, soft_cap
from octavo_kernels.reference.attention_plan import RaggedBatch
from octavo_kernels.reference.dequantize import dequantizable, dequantize, is_finite
from octavo_kernels.reference.linear_attention import Projections, linear_attention
from octavo_kernels.reference.logprobs import logprobs
from octavo_kernels.reference.lora import LowRankStack, add_low_rank, stack_low_rank
from octavo_kernels.reference.noise import uniforms
from octavo_kernels.reference.norm import add_rms_norm, rms_norm
from octavo_kernels.reference.rotary import Rope, rope_table, rotate
from octavo_kernels.reference.sampling import SamplingRows, sample
from octavo_plugins.ops.logit_edits import edit_logits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from octavo.interfaces.architecture import RotaryConfig
    from octavo.interfaces.attention import StateCache
    from octavo.interfaces.ops import AdapterBatch, AdapterPart, AdapterParts
    from octavo.interfaces.sampler import LogprobInputs, SamplingInputs
    from octavo.interfaces.weights import WeightBlocks


class RotaryTable:
    """Cosines and sines by position, and those of the positions that were last asked for.

    All layers of a step ask for the same positions.
    """

    def __init__(self, table: Tensor) -> None:
        self.table = table  # [max_positions, 2, dim / 2]
        self._positions = torch.empty(0, dtype=torch.int64)
        self._rows = table[:0]

    def at(self, positions: Tensor) -> Tensor:
        """Return the rows of positions [n]: [n, 2, dim / 2]."""
        if not torch.equal(positions, self._positions):
            self._positions = positions.clone()
            self._rows = self.table.index_select(0, positions)
        return self._rows


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """A matrix [in, out]: torch's CPU products of few rows are fastest with it this way round."""

    matrix: Tensor


class TorchOps(OpSet):
    """Every operation as a few torch calls that write into the step's buffers."""

    block_types = frozenset(dequantizable())
    activation_dtype = "float32"
    bytes_per_weight = 4

    def pack_linear(self, blocks: Sequence[WeightBlocks]) -> LinearWeight:
        """Decode weights [out_i, in] and join them along `out`."""
        outs = [block.num_rows for block in blocks]
        matrix = torch.empty(blocks[0].columns, sum(outs))
        start = 0
        for block, rows in zip(blocks, outs, strict=True):
            matrix[:, start : start + rows] = _decode(block).T
            start += rows
        return LinearWeight(matrix)

    def pack_embedding(self, blocks: WeightBlocks) -> Tensor:
        """Decode an embedding [vocab, hidden]."""
        return _decode(blocks)

    def pack_vector(self, blocks: Sequence[WeightBlocks]) -> Tensor:
        """Decode vectors and join them: float32 [n]."""
        return torch.cat([_decode(block).view(-1) for block in blocks])

    def decode(self, blocks: WeightBlocks) -> WeightBlocks:
        """Decode to F32."""
        data = _decode(blocks).contiguous().numpy().view("uint8")
        return replace(blocks, block_type="F32", data=data.reshape(blocks.num_rows, -1))

    def embedding(self, out: Tensor, ids: Tensor, weight: Tensor, rows: Count) -> None:
        """Set out[i] = weight[ids[i]]."""
        n = rows.value
        torch.index_select(weight, 0, ids[:n], out=out[:n])

    def rms_norm(self, out: Tensor, x: Tensor, weight: Tensor, eps: float, rows: Count) -> None:
        """Normalise the last dimension; `out` may be `x`."""
        n = rows.value
        rms_norm(x[:n], weight, eps, out[:n])

    def add_rms_norm(  # noqa: PLR0917 - the interface's
        self, out: Tensor, residual: Tensor, delta: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> None:
        """Add delta into residual, then normalise into out."""
        n = rows.value
        add_rms_norm(residual[:n], delta[:n], weight, eps, out[:n])

    def linear(
        self,
        out: Tensor,
        x: Tensor,
        weight: LinearWeight | Tensor,
        bias: Tensor | None,
        rows: Count,
    ) -> None:
        """Set out = x @ weight.T + bias; an embedding's weight [out, in] works as well."""
        n = rows.value
        matrix = weight.matrix if isinstance(weight, LinearWeight) else weight.T
        if bias is None:
            torch.mm(x[:n], matrix, out=out[:n])
        else:
            torch.addmm(bias, x[:n], matrix, out=out[:n])

    def rotary_table(self, config: RotaryConfig, max_positions: int) -> RotaryTable:
        """Compute cosines and sines. Raises `UnsupportedError` for an unknown rope type."""
        rope = Rope(
            config.head_dim,
            config.theta,
            config.scaling,
            config.partial_factor,
            config.original_max_positions,
            config.frequency_factors,
        )
        try:
            return RotaryTable(rope_table(rope, max_positions))
        except ValueError as error:
            raise UnsupportedError(
                "the model's rotary embedding cannot be computed", str(error)
            ) from error

    def rotary(
        self, q: Tensor, k: Tensor, positions: Tensor, table: RotaryTable, rows: Count
    ) -> None:
        """Rotate q [cap, heads, d] and k [cap, kv_heads, d] in place."""
        n = rows.value
        cos_sin = table.at(positions[:n])
        both = joined_heads(q, k)
        if both is not None:
            rotate(both[:n], cos_sin)
            return
        rotate(q[:n], cos_sin)
        rotate(k[:n], cos_sin)

    def silu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = silu(gate) * up."""
        n = rows.value
        silu_mul(gate_up[:n], out[:n])

    def gelu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = gelu(gate) * up, gelu by tanh."""
        n = rows.value
        gelu_mul(gate_up[:n], out[:n])

    def scale(self, x: Tensor, factor: float, rows: Count) -> None:
        """Multiply x by a number, in place."""
        x[: rows.value].mul_(factor)

    def soft_cap(self, x: Tensor, cap: float, rows: Count) -> None:
        """Set x = cap * tanh(x / cap), in place."""
        soft_cap(x[: rows.value], cap)

    def linear_attention(  # noqa: PLR0917 - the interface's
        self, out: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, cache: StateCache
    ) -> None:
        """Advance the states of the batch's sequences by its tokens, and read them."""
        batch = cache.batch
        n, num_seqs = batch.num_tokens.value, batch.num_seqs.value
        ragged = RaggedBatch(
            batch.query_start[: num_seqs + 1],
            batch.seq_lens[:num_seqs],
            batch.block_tables[:num_seqs],
            batch.block_size,
        )
        linear_attention(out[:n], Projections(q[:n], k[:n], v[:n]), decay, cache.states, ragged)

    def pack_adapter(self, parts: Sequence[AdapterPart]) -> LowRankStack:
        """Join the first factors, and lay out the second ones for products of few rows."""
        return stack_low_rank([(part.a, part.b, part.first) for part in parts], torch.float32)

    def adapt(self, out: Tensor, x: Tensor, parts: AdapterParts, batch: AdapterBatch) -> None:
        """Add what each adapter changes to its tokens: all tokens of an adapter at once."""
        for segment in batch.segments:
            stack: LowRankStack | None = parts.by_slot.get(segment.slot)
            if stack is None:
                continue
            first, num = segment.first, len(segment.tokens)
            rows = segment.tokens if first is None else slice(first, first + num)
            add_low_rank(out, x, stack, rows, segment.scales)

    def gather_rows(self, out: Tensor, x: Tensor, index: Tensor, rows: Count) -> None:
        """Set out[i] = x[index[i]]."""
        n = rows.value
        torch.index_select(x, 0, index[:n], out=out[:n])

    def uniforms(
        self,
        seeds: NDArray[np.uint64],
        positions: NDArray[np.int64],
        choices: NDArray[np.int64],
        purpose: int,
    ) -> NDArray[np.float64]:
        """Return noise in [0, 1) by Philox, float64 [n]."""
        return uniforms(seeds, positions, choices, purpose)

    def sample(self, logits: Tensor, inputs: SamplingInputs) -> SamplingOutputs:
        """Edit, filter and draw one token per row of logits [rows, vocab]."""
        edit_logits(logits, inputs)
        rows = SamplingRows(
            inputs.temperature, inputs.top_k, inputs.top_p, inputs.min_p, inputs.uniforms
        )
        return SamplingOutputs(*sample(logits, rows))

    def logprobs(self, logits: Tensor, inputs: LogprobInputs) -> LogprobOutputs:
        """Return log-probabilities of chosen and top tokens."""
        result = logprobs(logits, inputs.rows, inputs.token_ids, inputs.num_top)
        return LogprobOutputs(result.chosen, result.ranks, result.top_ids, result.top_logprobs)


def _decode(blocks: WeightBlocks) -> Tensor:
    """Return a tensor's weights as float32 of its shape (a vector is one row).

    Raises UnsupportedError for a block type that cannot be decoded, and ModelLoadError for weights
    that are NaN or infinite; both name the tensor.
    """
    if blocks.block_type not in TorchOps.block_types:
        raise UnsupportedError(
            f"the torch op set cannot multiply weights of block type '{blocks.block_type}'",
            f"tensor: {blocks.name} ({blocks.source})",
            f"block types it takes: {', '.join(sorted(TorchOps.block_types))}",
        )
    # torch warns of memory that it must not write to, as a mapped file is
    data = blocks.data if blocks.data.flags.writeable else blocks.data.copy()
    tensor = torch.from_numpy(data)
    if not is_finite(blocks.block_type, tensor):
        raise not_finite([blocks])
    return dequantize(blocks.block_type, tensor, blocks.columns)


def joined_heads(q: Tensor, k: Tensor) -> Tensor | None:
    """Return q and k as one tensor [cap, heads + kv_heads, d] where they lie side by side."""
    is_adjacent = (
        k.data_ptr() - q.data_ptr() == q.shape[1] * q.stride(1) * q.element_size()
        and q.stride() == k.stride()
        and q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr()
    )
    if not is_adjacent:
        return None
    shape = (q.shape[0], q.shape[1] + k.shape[1], q.shape[2])
    return q.as_strided(shape, q.stride())
