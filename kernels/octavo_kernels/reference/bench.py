"""Prints how long the reference kernels take here: `python -m octavo_kernels.reference.bench`.

Shapes are those of SmolLM2-135M (9 heads, 3 key heads, 64 wide, 30 layers, 49,152 tokens). Each
line is a median; where a kernel is bound by memory, it also says which share of the measured
reading speed it reaches. Knows the kernels. Does not judge: no time is asserted anywhere.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from octavo_kernels.reference.activation import silu_mul
from octavo_kernels.reference.attention import AttentionParams, paged_attention
from octavo_kernels.reference.attention_plan import AttentionPlan, RaggedBatch, Workspace
from octavo_kernels.reference.edits import PenaltyEntries, apply_penalties
from octavo_kernels.reference.kv_cache import KVCache, write_kv
from octavo_kernels.reference.logprobs import logprobs
from octavo_kernels.reference.noise import uniforms
from octavo_kernels.reference.norm import rms_norm
from octavo_kernels.reference.rotary import Rope, rope_table, rotate
from octavo_kernels.reference.sampling import SamplingRows, sample

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS: Final = 9
KV_HEADS: Final = 3
DIM: Final = 64
LAYERS: Final = 30
HIDDEN: Final = HEADS * DIM
FEEDFORWARD: Final = 1536
VOCAB: Final = 49_152
BLOCK: Final = 16
_MIN_SECONDS: Final = 0.3
_MIN_RUNS: Final = 5


def main() -> None:
    """Measure and print."""
    torch.manual_seed(0)
    speed = _reading_speed()
    _say(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    _say(f"reading memory: {speed / 1e9:.1f} GB/s")
    _layers()
    for count, length in ((64, 192), (16, 192), (1, 192), (1, 8192)):
        _decode(count, length, speed)
    for count, prefix in ((512, 0), (512, 3584), (2048, 0), (8192, 0)):
        _prefill(count, prefix)
    for count in (1, 16, 64):
        _sampling(count)
    _logits(64)


def _layers() -> None:
    table = rope_table(Rope(DIM, 10_000.0), 512)
    for rows in (1, 16, 64, 512):
        x, weight, out = torch.randn(rows, HIDDEN), torch.randn(HIDDEN), torch.empty(rows, HIDDEN)
        gate_up, activated = torch.randn(rows, 2 * FEEDFORWARD), torch.empty(rows, FEEDFORWARD)
        heads, angles = torch.randn(rows, HEADS + KV_HEADS, DIM), table[:rows]
        times = (
            _median_s(lambda: rms_norm(x, weight, 1e-5, out)),  # noqa: B023 - called at once
            _median_s(lambda: rotate(heads, angles)),  # noqa: B023
            _median_s(lambda: silu_mul(gate_up, activated)),  # noqa: B023
        )
        text = ", ".join(
            f"{name} {seconds * 1e6:.0f} us"
            for name, seconds in zip(("rms_norm", "rotate", "silu_mul"), times, strict=True)
        )
        _say(f"{rows} rows: {text}")


def _decode(count: int, length: int, speed: float) -> None:
    """Time one step of all layers, each with a cache of its own, as a model has."""
    blocks_each = -(-length // BLOCK)
    num_blocks = count * blocks_each + 1
    tables = (torch.randperm(num_blocks - 1) + 1).view(count, blocks_each).int()
    shape = (num_blocks, BLOCK, KV_HEADS, DIM)
    caches = [KVCache(torch.randn(shape), torch.randn(shape)) for _ in range(LAYERS)]
    q, out = torch.randn(2, count, HEADS, DIM)
    k, v = torch.randn(2, count, KV_HEADS, DIM)
    lengths = torch.full((count,), length) - torch.arange(count) % 16
    positions = lengths - 1
    slots = tables.gather(1, (positions // BLOCK)[:, None]).long()[:, 0] * BLOCK + positions % BLOCK
    batch = RaggedBatch(torch.arange(count + 1), lengths, tables, BLOCK)
    workspace, params = Workspace(), AttentionParams(DIM**-0.5)

    def step() -> None:
        plan = AttentionPlan(batch, workspace)
        for cache in caches:
            write_kv(cache, k, v, slots)
            paged_attention(out, q, cache, plan, params)

    seconds = _median_s(step)
    num_bytes = LAYERS * 2 * int(lengths.sum()) * KV_HEADS * DIM * 4
    _say(
        f"decode {count} x {length}, {LAYERS} layers: {seconds * 1e3:.1f} ms, "
        f"{100 * num_bytes / seconds / speed:.0f} % of reading speed"
    )


def _prefill(count: int, prefix: int) -> None:
    length = count + prefix
    blocks = -(-length // BLOCK)
    shape = (blocks + 1, BLOCK, KV_HEADS, DIM)
    cache = KVCache(torch.randn(shape), torch.randn(shape))
    tables = (torch.randperm(blocks) + 1)[None].int()
    q, out = torch.randn(2, count, HEADS, DIM)
    batch = RaggedBatch(torch.tensor([0, count]), torch.tensor([length]), tables, BLOCK)
    workspace, params = Workspace(), AttentionParams(DIM**-0.5)
    seconds = _median_s(
        lambda: paged_attention(out, q, cache, AttentionPlan(batch, workspace), params)
    )
    operations = 4 * HEADS * DIM * count * (prefix + count / 2)
    _say(
        f"prefill {count} after {prefix}, one layer: {seconds * 1e3:.1f} ms, "
        f"{operations / seconds / 1e9:.0f} Gop/s"
    )


def _sampling(count: int) -> None:
    """Time draws from logits as peaked as a model's, and from flat ones (the wide path)."""
    filters: dict[str, dict[str, float]] = {
        "greedy": {"temperature": 0.0},
        "temperature": {},
        "top-p": {"top_p": 0.95},
        "top-k": {"top_k": 50},
        "min-p": {"min_p": 0.05},
        "all": {"top_k": 50, "top_p": 0.9, "min_p": 0.02},
    }
    seeds, index = np.arange(count, dtype=np.uint64), np.arange(count)
    noise = uniforms(seeds, index, index, 0)
    for name, scale in (("peaked", 6.0), ("flat", 1.0)):
        logits = torch.randn(count, VOCAB) * scale
        parts = []
        for label, values in filters.items():
            rows = SamplingRows(
                np.full(count, values.get("temperature", 0.8), dtype=np.float32),
                np.full(count, values.get("top_k", 0), dtype=np.int32),
                np.full(count, values.get("top_p", 1.0)),
                np.full(count, values.get("min_p", 0.0)),
                noise,
            )
            seconds = _median_s(lambda: sample(logits, rows))  # noqa: B023 - called at once
            parts.append(f"{label} {seconds * 1e3:.2f}")
        _say(f"sample {count} {name} rows, ms: {', '.join(parts)}")


def _logits(count: int) -> None:
    logits = torch.randn(count, VOCAB) * 4
    rows, five = np.arange(count), np.full(count, 5)
    seconds = _median_s(lambda: logprobs(logits, rows, rows, five))
    _say(f"logprobs of {count} rows, 5 each: {seconds * 1e3:.2f} ms")
    length = 500
    ids = np.tile(np.arange(length), count)
    ones = np.ones(count * length, dtype=np.float32)
    entries = PenaltyEntries(np.repeat(rows, length), ids, ids % 3, ones, ones, ones)
    seconds = _median_s(lambda: apply_penalties(logits, entries))
    _say(f"penalties of {count} rows, {length} tokens each: {seconds * 1e3:.2f} ms")
    seeds = np.arange(count, dtype=np.uint64)
    seconds = _median_s(lambda: uniforms(seeds, rows, rows, 0))
    _say(f"noise for {count} rows: {seconds * 1e6:.0f} us")


def _reading_speed() -> float:
    """Return the bytes a second at which all threads together read memory."""
    memory = torch.ones(1 << 26)
    return memory.nbytes / _median_s(memory.sum)


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
