"""The `triton` op set: what stands between the matrix products as Triton kernels.

Matrix products, sampling and all that is not named here are torch's, as in the `torch` op set.
Knows the interface of ops and the Triton kernels. Does not know layers, models or requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.errors import UnsupportedError
from octavo.interfaces.ops import AdapterBatch
from octavo_kernels.triton import layers
from octavo_kernels.triton.devices import HOW_TO_INTERPRET, device_name, why_not
from octavo_plugins.ops.torch_ops import LinearWeight, RotaryTable, TorchOps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.interfaces.architecture import RotaryConfig
    from octavo.interfaces.ops import AdapterPart, AdapterParts, Count
    from octavo.interfaces.sampler import (
        LogprobInputs,
        LogprobOutputs,
        SamplingInputs,
        SamplingOutputs,
    )
    from octavo.interfaces.weights import WeightBlocks
    from octavo_kernels.reference.lora import LowRankStack


class TritonOps(TorchOps):
    """Norms, rotary embedding and gated activations by Triton; weights live on the GPU.

    Raises UnsupportedError where Triton can run nothing. Logits are drawn from on the CPU.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if reasons := why_not():
            raise UnsupportedError(
                "the op set 'triton' cannot run here", *reasons, HOW_TO_INTERPRET
            )
        self._device = device_name()
        self.bytes_per_weight = 4 if self._device == "cpu" else 0  # of main memory

    def pack_linear(self, blocks: Sequence[WeightBlocks]) -> LinearWeight:
        """Decode weights [out_i, in] and join them along `out`."""
        return LinearWeight(super().pack_linear(blocks).matrix.to(self._device))

    def pack_embedding(self, blocks: WeightBlocks) -> Tensor:
        """Decode an embedding [vocab, hidden]."""
        return super().pack_embedding(blocks).to(self._device)

    def pack_vector(self, blocks: Sequence[WeightBlocks]) -> Tensor:
        """Decode vectors and join them: float32 [n]."""
        return super().pack_vector(blocks).to(self._device)

    def pack_adapter(self, parts: Sequence[AdapterPart]) -> LowRankStack:
        """Join the first factors, and lay out the second ones for products of few rows."""
        device = self._device
        return super().pack_adapter(
            [replace(part, a=part.a.to(device), b=part.b.to(device)) for part in parts]
        )

    def adapt(self, out: Tensor, x: Tensor, parts: AdapterParts, batch: AdapterBatch) -> None:
        """Add what each adapter changes to its tokens: all tokens of an adapter at once."""
        device = self._device
        segments = [
            replace(one, tokens=one.tokens.to(device), scales=one.scales.to(device))
            for one in batch.segments
        ]
        super().adapt(out, x, parts, AdapterBatch(segments))

    def rms_norm(self, out: Tensor, x: Tensor, weight: Tensor, eps: float, rows: Count) -> None:
        """Normalise the last dimension; `out` may be `x`."""
        n = rows.value
        layers.rms_norm(x[:n], weight, eps, out[:n])

    def add_rms_norm(  # noqa: PLR0917 - the interface's
        self, out: Tensor, residual: Tensor, delta: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> None:
        """Add delta into residual, then normalise into out."""
        n = rows.value
        layers.add_rms_norm(residual[:n], delta[:n], weight, eps, out[:n])

    def rotary_table(self, config: RotaryConfig, max_positions: int) -> RotaryTable:
        """Compute cosines and sines. Raises `UnsupportedError` for an unknown rope type."""
        return RotaryTable(super().rotary_table(config, max_positions).table.to(self._device))

    def rotary(
        self, q: Tensor, k: Tensor, positions: Tensor, table: RotaryTable, rows: Count
    ) -> None:
        """Rotate q [cap, heads, d] and k [cap, kv_heads, d] in place."""
        n = rows.value
        layers.rotate(q[:n], k[:n], table.table, positions[:n])

    def silu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = silu(gate) * up."""
        n = rows.value
        layers.silu_mul(gate_up[:n], out[:n])

    def gelu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = gelu(gate) * up, gelu by tanh."""
        n = rows.value
        layers.gelu_mul(gate_up[:n], out[:n])

    def sample(self, logits: Tensor, inputs: SamplingInputs) -> SamplingOutputs:
        """Edit, filter and draw one token per row of logits [rows, vocab]."""
        return super().sample(logits.cpu(), inputs)

    def logprobs(self, logits: Tensor, inputs: LogprobInputs) -> LogprobOutputs:
        """Return log-probabilities of chosen and top tokens."""
        return super().logprobs(logits.cpu(), inputs)
