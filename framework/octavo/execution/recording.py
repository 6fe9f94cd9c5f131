"""Records a forward pass as a plain list of calls, and replays it.

Operations take their buffers, tables and counts by reference, so the list that one step made
serves any later step that fits the same buffers: other counts, lengths, block tables and rows
are simply read where they always were. Replaying skips all Python between the calls; of those
that are a library's own, it joins as many as follow one another.

Knows callables and their arguments. Does not know what any operation computes, nor which
architecture is recorded. What returns a value (packing, tables, sampling) cannot be replayed and
is handed through unrecorded.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from octavo.interfaces.attention import Attention
from octavo.interfaces.ops import OpSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from torch import Tensor

    from octavo.interfaces.architecture import Architecture
    from octavo.interfaces.attention import AttentionBatch, AttentionSpec, CacheSpec, StateCache
    from octavo.interfaces.native import NativeCall
    from octavo.interfaces.ops import AdapterBatch, AdapterPart, AdapterParts, Count
    from octavo.interfaces.sampler import (
        LogprobInputs,
        LogprobOutputs,
        SamplingInputs,
        SamplingOutputs,
    )
    from octavo.interfaces.weights import WeightBlocks


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One operation of an op set or an attention, with its arguments."""

    owner: OpSet | Attention
    operation: str
    args: tuple[Any, ...]

    def bound(self) -> Callable[[], None]:
        """Return a function that makes it."""
        return partial(getattr(self.owner, self.operation), *self.args)

    def as_native(self) -> NativeCall | None:
        """Return it as a call that others may join, if it is one."""
        return self.owner.native_call(self.operation, self.args)


@dataclass(slots=True)
class Record:
    """The calls of a step, in order."""

    calls: list[RecordedCall] = field(default_factory=list)
    _replayed: list[Callable[[], None]] = field(default_factory=list)

    def run(self, owner: OpSet | Attention, operation: str, *args: Any) -> None:
        """Make a call now, and remember it."""
        call = RecordedCall(owner, operation, args)
        call.bound()()
        self.calls.append(call)

    def replay(self) -> None:
        """Make all calls again, with what their arguments hold by now."""
        if not self._replayed:
            self._replayed = joined(self.calls)
        for call in self._replayed:
            call()


def joined(calls: Sequence[RecordedCall]) -> list[Callable[[], None]]:
    """Return what makes the calls, with all native ones joined that follow one another."""
    result: list[Callable[[], None]] = []
    run: list[NativeCall] = []
    for call in calls:
        native = call.as_native()
        if run and (native is None or not run[0].can_join(native)):
            result.append(run[0].join(run[1:]))
            run = []
        if native is None:
            result.append(call.bound())
        else:
            run.append(native)
    if run:
        result.append(run[0].join(run[1:]))
    return result


@contextmanager
def recording(architecture: Architecture) -> Iterator[Record]:
    """Let an architecture run through recorders for as long as the block lasts.

    The steps run inside execute as always; the record that the block is given holds their calls.
    """
    ops, attention = architecture.ops, architecture.attention
    record = Record()
    architecture.ops = _recorder(ops, record)
    architecture.attention = RecordingAttention(attention, record)
    try:
        yield record
    finally:
        architecture.ops, architecture.attention = ops, attention


def _recorder(ops: OpSet, record: Record) -> OpSet:
    """Return recording ops. What stands around other ops stays outside: its calls are recorded."""
    if isinstance(ops, RecordingOps):
        return ops.around(RecordingOps(ops.inner, record))
    return RecordingOps(ops, record)


class RecordingOps(OpSet):
    """Executes with another op set, and records every operation that writes into a buffer."""

    def __init__(self, inner: OpSet, record: Record) -> None:
        super().__init__(inner.options)
        self.inner = inner
        self.record = record
        self.block_types = inner.block_types
        self.activation_dtype = inner.activation_dtype
        self.cache_dtype = inner.cache_dtype
        self.collective = inner.collective

    def around(self, inner: OpSet) -> Self:
        """Return the same around another op set."""
        return type(self)(inner, self.record)

    def embedding(self, out: Tensor, ids: Tensor, weight: Any, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "embedding", out, ids, weight, rows)

    def rms_norm(self, out: Tensor, x: Tensor, weight: Tensor, eps: float, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "rms_norm", out, x, weight, eps, rows)

    def add_rms_norm(  # noqa: PLR0917 - the interface's
        self, out: Tensor, residual: Tensor, delta: Tensor, weight: Tensor, eps: float, rows: Count
    ) -> None:
        """Recorded."""
        self.record.run(self.inner, "add_rms_norm", out, residual, delta, weight, eps, rows)

    def linear(self, out: Tensor, x: Tensor, weight: Any, bias: Tensor | None, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "linear", out, x, weight, bias, rows)

    def rotary(self, q: Tensor, k: Tensor, positions: Tensor, table: Any, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "rotary", q, k, positions, table, rows)

    def silu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "silu_mul", out, gate_up, rows)

    def gelu_mul(self, out: Tensor, gate_up: Tensor, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "gelu_mul", out, gate_up, rows)

    def scale(self, x: Tensor, factor: float, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "scale", x, factor, rows)

    def soft_cap(self, x: Tensor, cap: float, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "soft_cap", x, cap, rows)

    def linear_attention(  # noqa: PLR0917 - the interface's
        self, out: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, cache: StateCache
    ) -> None:
        """Recorded."""
        self.record.run(self.inner, "linear_attention", out, q, k, v, decay, cache)

    def adapt(self, out: Tensor, x: Tensor, parts: AdapterParts, batch: AdapterBatch) -> None:
        """Recorded."""
        self.record.run(self.inner, "adapt", out, x, parts, batch)

    def all_reduce(self, x: Tensor, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "all_reduce", x, rows)

    def all_gather(self, out: Tensor, x: Tensor, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "all_gather", out, x, rows)

    def gather_rows(self, out: Tensor, x: Tensor, index: Tensor, rows: Count) -> None:
        """Recorded."""
        self.record.run(self.inner, "gather_rows", out, x, index, rows)

    def native_call(self, operation: str, args: tuple[Any, ...]) -> NativeCall | None:
        """Handed through."""
        return self.inner.native_call(operation, args)

    def pack_linear(self, blocks: Sequence[WeightBlocks]) -> Any:
        """Handed through."""
        return self.inner.pack_linear(blocks)

    def pack_embedding(self, blocks: WeightBlocks) -> Any:
        """Handed through."""
        return self.inner.pack_embedding(blocks)

    def pack_vector(self, blocks: Sequence[WeightBlocks]) -> Tensor:
        """Handed through."""
        return self.inner.pack_vector(blocks)

    def pack_adapter(self, parts: Sequence[AdapterPart]) -> Any:
        """Handed through."""
        return self.inner.pack_adapter(parts)

    def decode(self, blocks: WeightBlocks) -> WeightBlocks:
        """Handed through."""
        return self.inner.decode(blocks)

    def rotary_table(self, config: Any, max_positions: int) -> Any:
        """Handed through."""
        return self.inner.rotary_table(config, max_positions)

    def uniforms(
        self, seeds: np.ndarray, positions: np.ndarray, choices: np.ndarray, purpose: int
    ) -> np.ndarray:
        """Handed through."""
        return self.inner.uniforms(seeds, positions, choices, purpose)

    def sample(self, logits: Tensor, inputs: SamplingInputs) -> SamplingOutputs:
        """Handed through."""
        return self.inner.sample(logits, inputs)

    def logprobs(self, logits: Tensor, inputs: LogprobInputs) -> LogprobOutputs:
        """Handed through."""
        return self.inner.logprobs(logits, inputs)


class RecordingAttention(Attention):
    """Executes with another attention, and records what it does to caches and buffers."""

    def __init__(self, inner: Attention, record: Record) -> None:
        super().__init__(inner.options)
        self.inner = inner
        self.record = record
        self.cache_dtypes = inner.cache_dtypes

    def prepare(self, batch: AttentionBatch) -> None:
        """Recorded: what it leaves in `batch.prepared` must be read from there when replayed."""
        self.record.run(self.inner, "prepare", batch)

    def write(self, cache: Any, k: Tensor, v: Tensor, batch: AttentionBatch) -> None:
        """Recorded."""
        self.record.run(self.inner, "write", cache, k, v, batch)

    def forward(
        self, out: Tensor, q: Tensor, cache: Any, spec: AttentionSpec, batch: AttentionBatch
    ) -> None:
        """Recorded."""
        self.record.run(self.inner, "forward", out, q, cache, spec, batch)

    def native_call(self, operation: str, args: tuple[Any, ...]) -> NativeCall | None:
        """Handed through."""
        return self.inner.native_call(operation, args)

    def bytes_per_block(self, spec: CacheSpec, block_size: int) -> int:
        """Handed through."""
        return self.inner.bytes_per_block(spec, block_size)

    def allocate(self, spec: CacheSpec, num_blocks: int, block_size: int) -> Any:
        """Handed through."""
        return self.inner.allocate(spec, num_blocks, block_size)


def is_recordable(architecture: Architecture) -> bool:
    """Return whether a step of the model may be recorded: nothing in it says that it cannot be."""
    return (
        architecture.is_recordable
        and architecture.ops.is_recordable
        and architecture.attention.is_recordable
    )
