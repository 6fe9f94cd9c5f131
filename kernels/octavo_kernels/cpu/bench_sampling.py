"""Prints how long sampling takes here: `python -m octavo_kernels.cpu.bench_sampling`.

Logits are those of SmolLM2 (49,152 tokens), as peaked as a model's, and flat. Each line is of
medians in milliseconds, Python included, and says beside them which share of the measured reading
speed it is to read the logits once in that time. Knows the kernels. Does not judge: no time is
asserted anywhere.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from octavo_kernels.cpu.library import Library
from octavo_kernels.cpu.sampling import Sampler
from octavo_kernels.cpu.sampling_edits import SamplingEdits
from octavo_kernels.reference.sampling import SamplingRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

VOCAB: Final = 49_152
HISTORY: Final = 500
_FLOAT_BYTES: Final = 4
_ROWS: Final = (1, 16, 64)
_SCALES: Final = {"peaked": 6.0, "flat": 1.0}
_FILTERS: Final[dict[str, dict[str, float]]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "top-p": {"top_p": 0.95},
    "top-k": {"top_k": 50},
    "min-p": {"min_p": 0.05},
    "all": {"top_k": 50, "top_p": 0.9, "min_p": 0.02},
}
_MIN_SECONDS: Final = 0.2
_MIN_RUNS: Final = 7


def main() -> None:
    """Measure and print."""
    torch.manual_seed(0)
    bench = Bench(Sampler(Library.load()), torch.get_num_threads())
    memory = torch.ones(1 << 26)
    bench.reading_speed = memory.nbytes / _median_s(memory.sum)
    _say(f"{bench.num_threads} threads, reading memory: {bench.reading_speed / 1e9:.1f} GB/s")
    for count in _ROWS:
        for name, scale in _SCALES.items():
            bench.draws(f"sample {count} {name} rows", torch.randn(count, VOCAB) * scale)
        logits = torch.randn(count, VOCAB) * _SCALES["peaked"]
        bench.edits(f"greedy {count} rows after edits", logits)
        bench.rest(f"{count} rows", logits)


class Bench:
    """What all lines share."""

    def __init__(self, sampler: Sampler, num_threads: int) -> None:
        self.sampler = sampler
        self.num_threads = num_threads
        self.reading_speed = 0.0  # bytes a second

    def draws(self, title: str, logits: Tensor) -> None:
        """Time draws under each filter."""
        parts = {
            name: self._sample_s(logits, SamplingEdits(), values)
            for name, values in _FILTERS.items()
        }
        self._print(title, logits, parts)

    def edits(self, title: str, logits: Tensor) -> None:
        """Time draws after penalties of a history, and after a mask of half of the tokens."""
        count, parts = len(logits), {}
        for name in ("penalties", "mask"):
            edits = SamplingEdits()
            for row in range(count):
                if name == "penalties":
                    ids = np.random.default_rng(row).permutation(VOCAB)[:HISTORY]
                    edits.penalise(row, ids, ids % 3, (1.0, 0.0, 0.0))
                else:
                    edits.keep_masked(row, np.full(VOCAB // 32, 0x5A5A5A5A, np.uint32))
            parts[name] = self._sample_s(logits.clone(), edits, _FILTERS["greedy"])
        self._print(title, logits, parts)

    def rest(self, title: str, logits: Tensor) -> None:
        """Time log-probabilities and noise."""
        count = len(logits)
        index, seeds = np.arange(count), np.arange(count, dtype=np.uint64)
        parts = {
            f"logprobs, {top} each": _median_s(
                lambda top=top: self.sampler.logprobs(
                    logits, index, index, np.full(count, top), self.num_threads
                )
            )
            for top in (0, 5, 20)
        }
        parts["noise"] = _median_s(lambda: self.sampler.uniforms(seeds, index, index, 0))
        self._print(title, logits, parts)

    def _sample_s(self, logits: Tensor, edits: SamplingEdits, values: dict[str, float]) -> float:
        count = len(logits)
        rows = SamplingRows(
            np.full(count, values.get("temperature", 0.8), dtype=np.float32),
            np.full(count, values.get("top_k", 0), dtype=np.int32),
            np.full(count, values.get("top_p", 1.0)),
            np.full(count, values.get("min_p", 0.0)),
            np.linspace(0.0, 0.99, count),
        )
        return _median_s(lambda: self.sampler.sample(logits, rows, edits, self.num_threads))

    def _print(self, title: str, logits: Tensor, parts: dict[str, float]) -> None:
        ideal_s = logits.numel() * _FLOAT_BYTES / self.reading_speed
        texts = [
            f"{name} {seconds * 1e3:.3f} ({100 * ideal_s / seconds:.0f} %)"
            for name, seconds in parts.items()
        ]
        _say(f"{title}, ms: {', '.join(texts)}")


def _median_s(function: Callable[[], object]) -> float:
    """Return the median time of a call, after one that does not count."""
    function()
    times: list[float] = []
    while len(times) < _MIN_RUNS or sum(times) < _MIN_SECONDS:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
