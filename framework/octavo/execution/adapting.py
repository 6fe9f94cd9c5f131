"""An op set that lets adapters change what linears yield.

It stands around the model's own op set from the moment the first adapter is used, so that a model
without adapters pays nothing. The weights stay as they are packed; which tokens are changed by
which adapters is read from the batch at each step, so that a recorded step serves any of them.

Knows packed weights and their adapters' parts. Does not know how either is multiplied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from octavo.execution.recording import Record, RecordingOps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.interfaces.attention import Attention
    from octavo.interfaces.ops import AdapterBatch, AdapterParts, Count, OpSet


class _Direct(Record):
    """Keeps no calls."""

    def run(self, owner: OpSet | Attention, operation: str, *args: Any) -> None:
        """Make the call."""
        getattr(owner, operation)(*args)


class AdaptingOps(RecordingOps):
    """Another op set, whose `linear` is followed by `adapt` where the weight may be adapted.

    `parts` are those of each weight that adapters can change, by the weight's `id`: whoever makes
    this keeps the weights alive.
    """

    def __init__(
        self, inner: OpSet, parts: Mapping[int, AdapterParts], batch: AdapterBatch
    ) -> None:
        super().__init__(inner, _Direct())
        self.is_recordable = inner.is_recordable
        self._parts = parts
        self._batch = batch

    def around(self, inner: OpSet) -> Self:
        """Return the same around another op set."""
        return type(self)(inner, self._parts, self._batch)

    def linear(self, out: Tensor, x: Tensor, weight: Any, bias: Tensor | None, rows: Count) -> None:
        """Multiply, then add what adapters change."""
        self.inner.linear(out, x, weight, bias, rows)
        parts = self._parts.get(id(weight))
        if parts is not None:
            self.inner.adapt(out, x, parts, self._batch)
