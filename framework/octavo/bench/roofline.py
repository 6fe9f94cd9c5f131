"""What this machine can do: bytes read and multiplications a second, measured (torch).

Other programs only ever make it look slower, so the fastest of a few runs counts. Memory is read
in huge pages where the system has them, as weights are: looking up small ones halves the rate.

Knows the machine. Does not know any model.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: larger than most caches
_READ_BYTES = 256 * 2**20
_PIECE_BYTES = 4 * 2**20
_MATRIX = 768
_RUNS = 15
_FLOAT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Roofline:
    """The measured limits. Rates in 1e9 a second."""

    read_gb_per_s: float
    gemm_gflop_per_s: float
    num_threads: int


def measure_roofline() -> Roofline:
    """Measure with torch's current number of threads; takes about a second."""
    reads, products = reading(_READ_BYTES), multiplying()
    return Roofline(
        reads.amount / reads.least_s() / 1e9,
        2 * products.amount / products.least_s() / 1e9,
        torch.get_num_threads(),
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """Something that the machine is good at: a call, and how much of it that is."""

    amount: int
    call: Callable[[], object]

    def least_s(self) -> float:
        """Return the seconds of the fastest of a few calls, after a first one."""
        self.call()
        times = []
        for _ in range(_RUNS):
            start = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - start)
        return min(times)


def reading(num_bytes: int = _READ_BYTES) -> Probe:
    """Return what reads so many bytes with all threads; from a cache if one holds them.

    A call reads one piece, and the next call the next: a short time is the more often undisturbed.
    What is smaller than a piece is read again and again, as starting to read takes its time, too.
    torch's product of a vector with itself reads faster than its sum does.
    """
    piece_bytes = max(_FLOAT_BYTES, min(_PIECE_BYTES, num_bytes - num_bytes % _FLOAT_BYTES))
    num_pieces = -(-num_bytes // piece_bytes)
    memory = mmap.mmap(-1, num_pieces * piece_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    values = torch.frombuffer(memory, dtype=torch.float32).fill_(1.0)
    pieces = cycle(values.view(num_pieces, -1))
    num_times = _PIECE_BYTES // piece_bytes

    def read() -> None:
        piece = next(pieces)
        for _ in range(num_times):
            piece.dot(piece)

    return Probe(num_times * piece_bytes, read)


def multiplying() -> Probe:
    """Return torch's product of float32 matrices, counting multiplications with an addition."""
    left, right = torch.ones(_MATRIX, _MATRIX), torch.ones(_MATRIX, _MATRIX)
    return Probe(_MATRIX**3, lambda: left @ right)
