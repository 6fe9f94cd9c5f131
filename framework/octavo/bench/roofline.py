"""What this machine can do: bytes read and multiplications a second, measured (torch).

Knows the machine. Does not know any model.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: larger than any cache; read as a whole in each run
_READ_BYTES = 256 * 2**20
_MATRIX = 1024
_RUNS = 7


@dataclass(frozen=True, slots=True)
class Roofline:
    """The measured limits. Rates in 1e9 a second."""

    read_gb_per_s: float
    gemm_gflop_per_s: float
    num_threads: int


def measure_roofline() -> Roofline:
    """Measure with torch's current number of threads; takes about a second."""
    values = torch.ones(_READ_BYTES // 4)
    left, right = torch.ones(_MATRIX, _MATRIX), torch.ones(_MATRIX, _MATRIX)
    read_s = _median_s(values.sum)
    gemm_s = _median_s(lambda: left @ right)
    return Roofline(
        _READ_BYTES / read_s / 1e9, 2 * _MATRIX**3 / gemm_s / 1e9, torch.get_num_threads()
    )


def _median_s(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)
