"""Watches what a forward pass does: which operations it calls, and what torch does beside them.

Knows operations as calls. Does not know what any of them computes.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from octavo.execution.recording import Record, RecordingAttention, RecordingOps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from octavo.interfaces.architecture import Architecture
    from octavo.interfaces.attention import Attention
    from octavo.interfaces.ops import OpSet


class WatchedCalls(Record):
    """Makes each call at once, and keeps what its first buffer came to.

    `strays` are calls of torch that were made outside of the operations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, float]] = []
        self.strays: list[str] = []
        self.is_inside = False

    def run(self, owner: OpSet | Attention, operation: str, *args: Any) -> None:
        """Make a call, and note it."""
        self.is_inside = True
        try:
            super().run(owner, operation, *args)
            self.written.append((operation, _sum_of(args[0])))
        finally:
            self.is_inside = False


class _Strays(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what torch is asked for outside of operations."""

    def __init__(self, calls: WatchedCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if not self.calls.is_inside:
            self.calls.strays.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def watched(model: Architecture) -> Iterator[WatchedCalls]:
    """Note the operations that a model calls for as long as the block lasts."""
    ops, attention, calls = model.ops, model.attention, WatchedCalls()
    model.ops, model.attention = RecordingOps(ops, calls), RecordingAttention(attention, calls)
    try:
        yield calls
    finally:
        model.ops, model.attention = ops, attention


@contextmanager
def watched_closely(model: Architecture) -> Iterator[WatchedCalls]:
    """As `watched`, and note what is asked of torch beside them."""
    with watched(model) as calls, _Strays(calls):
        yield calls


def _sum_of(first: Tensor | Any) -> float:
    """Return a sum of a buffer that changes with each of its numbers; 0 of what is none."""
    if not hasattr(first, "double") or not first.is_floating_point():
        return 0.0
    return float(first.double().square().sum())
