"""Prints how long the Triton kernels take on this GPU: `python -m octavo_kernels.triton.bench`.

Each line is a median, with the share it reaches of what the machine was measured to do: bytes
read a second where memory is the bound, operations of a large matrix product where those are.
Knows the kernels. Does not judge: no time is asserted anywhere.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from octavo_kernels.reference.attention import AttentionParams
from octavo_kernels.reference.attention_plan import RaggedBatch
from octavo_kernels.reference.kv_cache import KVCache
from octavo_kernels.reference.rotary import Rope, rope_table
from octavo_kernels.triton import layers
from octavo_kernels.triton.attention import num_programs_for, paged_attention, write_kv
from octavo_kernels.triton.attention_plan import TritonPlan
from octavo_kernels.triton.devices import device_name, why_not

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

BLOCK: Final = 16
EPS: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured: a layer, and how much of everything. `decodes`: (sequences, length)."""

    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    rows: tuple[int, ...] = (1, 64, 4096)
    decodes: tuple[tuple[int, int], ...] = ((1, 8192), (64, 1024), (64, 8192), (1, 131_072))
    prefills: tuple[tuple[int, int], ...] = ((2048, 0), (2048, 14_336), (8192, 0))
    matrix: int = 8192
    read_bytes: int = 1 << 30
    num_runs: int = 20
    dtypes: tuple[torch.dtype, ...] = (torch.float16, torch.float32)


@dataclass(frozen=True, slots=True)
class Bench:
    """Measures on one device, in one dtype. Rates are those of the machine, a second."""

    sizes: Sizes
    device: torch.device
    dtype: torch.dtype
    read_rate: float
    operation_rate: float

    def randn(self, *shape: int) -> Tensor:
        """Return random numbers of the dtype."""
        return torch.randn(shape, device=self.device, dtype=self.dtype)

    def say_memory(self, what: str, num_bytes: int, call: Callable[[], object]) -> None:
        """Time a call that moves so many bytes."""
        seconds = median_s(call, self.device, self.sizes.num_runs)
        share = 100 * num_bytes / seconds / self.read_rate
        say(f"  {what}: {seconds * 1e6:.0f} us, {share:.0f} % of reading speed")

    def say_operations(self, what: str, operations: float, call: Callable[[], object]) -> None:
        """Time a call that multiplies and adds so often."""
        seconds = median_s(call, self.device, self.sizes.num_runs)
        share = 100 * operations / seconds / self.operation_rate
        say(f"  {what}: {seconds * 1e6:.0f} us, {share:.0f} % of a matrix product's speed")


def main(sizes: Sizes | None = None) -> None:
    """Measure and print. Ends the program with the reasons where no kernel can run."""
    if reasons := why_not():
        raise SystemExit(f"nothing to measure: {'; '.join(reasons)}")
    sizes, device = sizes or Sizes(), torch.device(device_name())
    torch.manual_seed(0)
    values = torch.ones(sizes.read_bytes // 4, device=device)
    read_rate = values.nbytes / median_s(values.sum, device, sizes.num_runs)
    name = "the interpreter" if device.type == "cpu" else torch.cuda.get_device_name(device)
    say(f"torch {torch.__version__}, {name}, reading memory: {read_rate / 1e9:.0f} GB/s")
    for dtype in sizes.dtypes:
        matrix = torch.randn(sizes.matrix, sizes.matrix, device=device, dtype=dtype)
        seconds = median_s(lambda: matrix @ matrix, device, sizes.num_runs)  # noqa: B023 - at once
        rate = 2 * sizes.matrix**3 / seconds
        say(f"{str(dtype).removeprefix('torch.')}, matrix product: {rate / 1e12:.1f} Top/s")
        bench = Bench(sizes, device, dtype, read_rate, rate)
        for rows in sizes.rows:
            _layers(bench, rows)
        for count, length in sizes.decodes:
            _decode(bench, count, length)
        for count, prefix in sizes.prefills:
            _prefill(bench, count, prefix)


def _layers(bench: Bench, rows: int) -> None:
    sizes, size = bench.sizes, bench.dtype.itemsize
    hidden = sizes.heads * sizes.dim
    x, delta, out = (bench.randn(rows, hidden) for _ in range(3))
    weight = torch.ones(hidden, device=bench.device)
    bench.say_memory(
        f"add_rms_norm of {rows} rows of {hidden}",
        4 * rows * hidden * size,
        lambda: layers.add_rms_norm(x, delta, weight, EPS, out),
    )
    gate_up, activated = bench.randn(rows, 8 * hidden), bench.randn(rows, 4 * hidden)
    bench.say_memory(
        f"silu_mul of {rows} rows of {4 * hidden}",
        12 * rows * hidden * size,
        lambda: layers.silu_mul(gate_up, activated),
    )
    q = bench.randn(rows, sizes.heads, sizes.dim)
    k, v = (bench.randn(rows, sizes.kv_heads, sizes.dim) for _ in range(2))
    table = rope_table(Rope(sizes.dim, 10_000.0), rows).to(bench.device)
    positions = torch.arange(rows, device=bench.device)
    bench.say_memory(
        f"rotate {rows} tokens",
        2 * (q.nbytes + k.nbytes) + table.nbytes,
        lambda: layers.rotate(q, k, table, positions),
    )
    cache = _cache(bench, -(-rows // BLOCK))
    slots = torch.randperm(rows, device=bench.device) + BLOCK
    bench.say_memory(
        f"write {rows} tokens", 2 * (k.nbytes + v.nbytes), lambda: write_kv(cache, k, v, slots)
    )


def _decode(bench: Bench, count: int, length: int) -> None:
    """Time one query of each of `count` sequences, which share no block."""
    cache, plan = _batch(bench, count, 1, length)
    q, out = (bench.randn(count, bench.sizes.heads, bench.sizes.dim) for _ in range(2))
    params = AttentionParams(bench.sizes.dim**-0.5)
    num_bytes = 2 * count * length * bench.sizes.kv_heads * bench.sizes.dim * bench.dtype.itemsize
    bench.say_memory(
        f"decode {count} x {length}",
        num_bytes,
        lambda: paged_attention(out, q, cache, plan, params),
    )


def _prefill(bench: Bench, count: int, prefix: int) -> None:
    """Time `count` queries of one sequence after `prefix` positions."""
    cache, plan = _batch(bench, 1, count, prefix + count)
    q, out = (bench.randn(count, bench.sizes.heads, bench.sizes.dim) for _ in range(2))
    params = AttentionParams(bench.sizes.dim**-0.5)
    bench.say_operations(
        f"prefill {count} after {prefix}",
        4 * bench.sizes.heads * bench.sizes.dim * count * (prefix + count / 2),
        lambda: paged_attention(out, q, cache, plan, params),
    )


def _batch(bench: Bench, count: int, queries: int, length: int) -> tuple[KVCache, TritonPlan]:
    blocks_each = -(-length // BLOCK)
    tables = (torch.randperm(count * blocks_each) + 1).view(count, blocks_each).int()
    batch = RaggedBatch(
        torch.arange(count + 1) * queries,
        torch.full((count,), length),
        tables.to(bench.device),
        BLOCK,
    )
    return _cache(bench, count * blocks_each), TritonPlan(batch, num_programs_for(bench.device))


def _cache(bench: Bench, num_blocks: int) -> KVCache:
    shape = (num_blocks + 1, BLOCK, bench.sizes.kv_heads, bench.sizes.dim)
    return KVCache(bench.randn(*shape), bench.randn(*shape))


def median_s(call: Callable[[], object], device: torch.device, num_runs: int) -> float:
    """Return the median time of a call, after two that do not count, the device's work included."""
    times = []
    for run in range(num_runs + 2):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        if run > 1:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.cuda.synchronize(device)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
