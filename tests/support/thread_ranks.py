"""Ranks of a split model as threads of the test: the sums of `ranks` without its processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from octavo.interfaces.ops import Collective

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ThreadCollective(Collective):
    """One rank's view of a group; every operation waits for all ranks."""

    def __init__(self, rank: int, size: int, barrier: Barrier, shared: list[Any]) -> None:
        self.rank, self.size = rank, size
        self._barrier, self._shared = barrier, shared
        self.num_calls = 0

    def all_reduce(self, x: torch.Tensor) -> None:
        x.copy_(sum(self._exchange(x)[1:], self._shared[0].clone()))
        self._barrier.wait()

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        assert out.shape == (self.size, *x.shape)
        out.copy_(torch.stack(self._exchange(x)))
        self._barrier.wait()

    def _exchange(self, x: torch.Tensor) -> list[torch.Tensor]:
        self.num_calls += 1
        self._shared[self.rank] = x.clone()
        self._barrier.wait()
        return self._shared


def run_ranks(size: int, run: Callable[[ThreadCollective], T]) -> list[T]:
    """Call `run` on a thread for each rank and return what they returned, in order of rank."""
    barrier, shared = Barrier(size, timeout=30), [None] * size

    def guarded(rank: int) -> T:
        try:
            return run(ThreadCollective(rank, size, barrier, shared))
        except BaseException:
            barrier.abort()  # the others must not wait for a rank that failed
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(guarded, range(size)))
