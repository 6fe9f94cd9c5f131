"""The `cpu` op set: kernels in C++ over weights that stay quantised.

An operation is a call of the kernels; a recorded step is a list of them that one team of threads
runs. What has no kernel yet is torch's, as in the `torch` op set. Knows the interface of ops and
the kernels' arguments. Does not know layers, models or requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo_kernels.cpu import calls
from octavo_kernels.cpu.library import Call
from octavo_kernels.cpu.lora import LowRankFactors
from octavo_kernels.cpu.memory import Arena
from octavo_kernels.cpu.packing import linear_bytes
from octavo_plugins.native.cpu_calls import CpuCall, address
from octavo_plugins.ops.cpu_options import CpuOpsOptions
from octavo_plugins.ops.cpu_sampling import CpuSamplingOps
from octavo_plugins.ops.cpu_segments import Segments, adapt_call
from octavo_plugins.ops.cpu_weights import BLOCK_TYPES, PackedLinear, pack_blocks
from octavo_plugins.ops.torch_ops import RotaryTable, joined_heads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ctypes import Structure

    from torch import Tensor

    from octavo.interfaces.native import NativeCall
    from octavo.interfaces.ops import AdapterBatch, AdapterPart, AdapterParts, Count
    from octavo.interfaces.weights import WeightBlocks

#: adapters come and go: memory returns when all that share a chunk have gone
_ADAPTER_CHUNK_BYTES = 8 << 20
_SILU, _GELU = 0, 1
_MULTIPLY, _SOFT_CAP = 0, 1


class CpuOps(CpuSamplingOps):
    """Every operation of a layer as a call of the kernels.

    A row's result depends on that row alone, bit for bit, whatever shares the batch. Raises
    UnsupportedError where the kernels cannot be compiled.
    """

    Options = CpuOpsOptions

    block_types = frozenset(BLOCK_TYPES)

    def __init__(self, options: CpuOpsOptions) -> None:
        super().__init__(options)
        self._arena = Arena()
        self._adapter_arena = Arena(_ADAPTER_CHUNK_BYTES)
        self._is_exact = options.mode == "exact"
        self._segments: dict[int, Segments] = {}

    def native_call(self, operation: str, args: tuple[Any, ...]) -> NativeCall | None:
        """Return an operation as kernel calls, if there are kernels for it."""
        if operation == "adapt":
            return self._adapt_call(*args)
        make = getattr(self, f"_{operation}_calls", None)
        return None if make is None else CpuCall(self._library, tuple(make(*args)))

    def _make(self, made: list[Call]) -> None:
        CpuCall(self._library, tuple(made)).make()

    def pack_linear(self, blocks: Sequence[WeightBlocks]) -> PackedLinear:  # type: ignore[override]
        """Repack weights [out_i, in], joined along `out`."""
        packed = pack_blocks(self._library, self._arena, blocks)
        if not self._is_exact and not all(part.is_float for part in packed.parts):
            # rotated codes of a byte change perplexity less than activations of a byte do
            self.cache_dtype = "int8"
        return packed

    def pack_embedding(self, blocks: WeightBlocks) -> PackedLinear:  # type: ignore[override]
        """Repack an embedding [vocab, hidden]; it works as the weight of `linear` as well."""
        return pack_blocks(self._library, self._arena, [blocks])

    def embedding(self, out: Tensor, ids: Tensor, weight: Any, rows: Count) -> None:
        """Set out[i] = weight[ids[i]]."""
        self._make(self._embedding_calls(out, ids, weight, rows))

    def _embedding_calls(
        self, out: Tensor, ids: Tensor, weight: PackedLinear, rows: Count
    ) -> list[Call]:
        (part,) = weight.parts
        arguments = calls.Embedding(
            out=address(out),
            ids=address(ids),
            weight=part.matrix.address,
            rows=rows.cell.ctypes.data,
            columns=part.matrix.columns,
            format=part.matrix.format,
        )
        return [_call("embedding", arguments, out, ids, weight, rows)]

    def rms_norm(self, out: Tensor, x: Tensor, weight: Tensor, eps: float, rows: Count) -> None:
        """Normalise the last dimension; `out` may be `x`."""
        self._make(self._rms_norm_calls(out, x, weight, eps, rows))

    def _rms_norm_calls(
        self, out: Tensor, x: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> list[Call]:
        width = x.shape[-1]
        arguments = calls.RmsNorm(
            out=address(out),
            x=address(x),
            weight=address(weight),
            rows=rows.cell.ctypes.data,
            out_stride=out.stride(0),
            x_stride=x.stride(0),
            heads=x[0].numel() // width,
            width=width,
            eps=eps,
        )
        return [_call("rms_norm", arguments, out, x, weight, rows)]

    def add_rms_norm(  # noqa: PLR0917 - the interface's
        self, out: Tensor, residual: Tensor, delta: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> None:
        """Add delta into residual, then normalise into out."""
        self._make(self._add_rms_norm_calls(out, residual, delta, weight, eps, rows))

    def _add_rms_norm_calls(  # noqa: PLR0917 - the interface's
        self, out: Tensor, residual: Tensor, delta: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> list[Call]:
        arguments = calls.AddRmsNorm(
            out=address(out),
            residual=address(residual),
            delta=address(delta),
            weight=address(weight),
            rows=rows.cell.ctypes.data,
            width=residual.shape[-1],
            eps=eps,
        )
        return [_call("add_rms_norm", arguments, out, residual, delta, weight, rows)]

    def linear(self, out: Tensor, x: Tensor, weight: Any, bias: Tensor | None, rows: Count) -> None:
        """Set out = x @ weight.T + bias."""
        self._make(self._linear_calls(out, x, weight, bias, rows))

    def _linear_calls(
        self, out: Tensor, x: Tensor, weight: PackedLinear, bias: Tensor | None, rows: Count
    ) -> list[Call]:
        made: list[Call] = []
        kinds: set[bool] = set()
        for part in weight.parts:
            matrix, first = part.matrix, part.first
            is_exact = self._is_exact or part.is_float
            arguments = calls.Linear(
                out=address(out[:, first:]),
                x=address(x),
                weight=matrix.address,
                bias=None if bias is None else address(bias[first:]),
                rows=rows.cell.ctypes.data,
                out_stride=out.stride(0),
                x_stride=x.stride(0),
                columns=matrix.columns,
                outputs=matrix.rows,
                format=matrix.format,
                is_exact=is_exact,
                is_laid_out=kinds == {is_exact},
            )
            kinds = {is_exact}
            size = linear_bytes(self._library, len(x), matrix.columns)
            made.append(_call("linear", arguments, out, x, weight, bias, rows, shared=size))
        return made

    def rotary(
        self, q: Tensor, k: Tensor, positions: Tensor, table: RotaryTable, rows: Count
    ) -> None:
        """Rotate q [cap, heads, d] and k [cap, kv_heads, d] in place."""
        self._make(self._rotary_calls(q, k, positions, table, rows))

    def _rotary_calls(
        self, q: Tensor, k: Tensor, positions: Tensor, table: RotaryTable, rows: Count
    ) -> list[Call]:
        both = joined_heads(q, k)
        return [
            _call(
                "rotary",
                calls.Rotary(
                    x=address(x),
                    positions=address(positions),
                    table=address(table.table),
                    rows=rows.cell.ctypes.data,
                    row_stride=x.stride(0),
                    head_stride=x.stride(1),
                    heads=x.shape[1],
                    half=table.table.shape[-1],
                ),
                x,
                positions,
                table,
                rows,
            )
            for x in ((q, k) if both is None else (both,))
        ]

    def silu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = silu(gate) * up."""
        self._make(self._silu_mul_calls(out, gate_up, rows))

    def _silu_mul_calls(self, out: Tensor, gate_up: Tensor, rows: Count) -> list[Call]:
        return _gated(out, gate_up, rows, _SILU)

    def gelu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Set out = gelu(gate) * up, gelu by tanh."""
        self._make(self._gelu_mul_calls(out, gate_up, rows))

    def _gelu_mul_calls(self, out: Tensor, gate_up: Tensor, rows: Count) -> list[Call]:
        return _gated(out, gate_up, rows, _GELU)

    def scale(self, x: Tensor, factor: float, rows: Count) -> None:
        """Multiply x by a number, in place."""
        self._make(self._scale_calls(x, factor, rows))

    def _scale_calls(self, x: Tensor, factor: float, rows: Count) -> list[Call]:
        return _elementwise(x, factor, rows, _MULTIPLY)

    def soft_cap(self, x: Tensor, cap: float, rows: Count) -> None:
        """Set x = cap * tanh(x / cap), in place."""
        self._make(self._soft_cap_calls(x, cap, rows))

    def _soft_cap_calls(self, x: Tensor, cap: float, rows: Count) -> list[Call]:
        return _elementwise(x, cap, rows, _SOFT_CAP)

    def pack_adapter(self, parts: Sequence[AdapterPart]) -> LowRankFactors:  # type: ignore[override]
        """Lay out one adapter's factors as the kernels read them."""
        changes = [(part.a, part.b, part.first) for part in parts]
        # beside quantised weights, like keys and values
        is_half = self.cache_dtype is not None
        return LowRankFactors.of(
            changes, self._adapter_arena, lanes=self._library.lanes, is_half=is_half
        )

    def adapt(self, out: Tensor, x: Tensor, parts: AdapterParts, batch: AdapterBatch) -> None:
        """Add what each adapter changes to its tokens."""
        self._adapt_call(out, x, parts, batch).make()

    def _adapt_call(
        self, out: Tensor, x: Tensor, parts: AdapterParts, batch: AdapterBatch
    ) -> CpuCall:
        segments = self._segments.setdefault(id(batch), Segments(batch))
        return adapt_call(self._library, segments, out, x, parts)

    def gather_rows(self, out: Tensor, x: Tensor, index: Tensor, rows: Count) -> None:
        """Set out[i] = x[index[i]]."""
        self._make(self._gather_rows_calls(out, x, index, rows))

    def _gather_rows_calls(self, out: Tensor, x: Tensor, index: Tensor, rows: Count) -> list[Call]:
        arguments = calls.GatherRows(
            out=address(out),
            x=address(x),
            index=address(index),
            rows=rows.cell.ctypes.data,
            width=x.shape[-1],
        )
        return [_call("gather_rows", arguments, out, x, index, rows)]


def _gated(out: Tensor, gate_up: Tensor, rows: Count, kind: int) -> list[Call]:
    arguments = calls.GatedActivation(
        out=address(out),
        gate_up=address(gate_up),
        rows=rows.cell.ctypes.data,
        width=out.shape[-1],
        kind=kind,
    )
    return [_call("gated_activation", arguments, out, gate_up, rows)]


def _elementwise(x: Tensor, number: float, rows: Count, kind: int) -> list[Call]:
    arguments = calls.Elementwise(
        x=address(x),
        rows=rows.cell.ctypes.data,
        width=x[0].numel(),
        kind=kind,
        number=number,
    )
    return [_call("elementwise", arguments, x, rows)]


def _call(operation: str, arguments: Structure, *keep: object, shared: int = 0) -> Call:
    return Call(operation, arguments, keep, shared)
