"""What `octavo bench step` prints: parts of a step, and its kernels.

Knows tables. The measuring is in `octavo.bench.step`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.bench.step import StepMeter
from octavo.frontend.progress import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.bench.kernels import KernelRow
    from octavo.bench.roofline import Roofline
    from octavo.bench.step import StepTimes
    from octavo.config.resolved import ResolvedConfig


def step_report(
    config: ResolvedConfig, sizes: Sequence[int], context: int, num_steps: int
) -> tuple[Roofline, dict[str, Any]]:
    """Measure each number of sequences; say on stderr how far it is.

    Returns the machine's limits, and tables: one of parts, and one of kernels for each number
    where the model's steps can be recorded.
    """
    with ProgressLine("measuring steps", len(sizes)) as line, StepMeter(config) as meter:
        measured = []
        for num_done, size in enumerate(sizes):
            line.show(num_done, f"{size} sequences")
            measured.append(meter.measure(size, context, num_steps))
        line.show(len(sizes))
        limits = meter.limits
    return limits, {
        "title": f"parts of a decode step, in ms: medians of {num_steps}",
        "rows": [_parts(one) for one in measured],
        "kernels": [_kernels(one) for one in measured if one.kernels],
    }


def _parts(times: StepTimes) -> dict[str, Any]:
    return {
        "sequences": times.num_seqs,
        "tok/s": round(times.rate, 1),
        "step": round(times.step_ms, 3),
        "engine": round(times.engine_ms, 3),
        "batch": round(times.build_ms, 3),
        "layers": round(times.layers_ms, 3),
        "sampling": round(times.sample_ms, 3),
        "all but layers": round(times.beside_layers_ms, 3),
    }


def _kernels(times: StepTimes) -> dict[str, Any]:
    total_ms = sum(one.step_ms for one in times.kernels)
    return {
        "title": (
            f"kernels, {times.num_seqs} sequences after {times.context_tokens} tokens each: "
            f"{total_ms:.3f} ms of {times.fastest_layers_ms:.3f} ms, at the fastest each"
        ),
        "rows": [_kernel(one) for one in times.kernels],
    }


def _kernel(row: KernelRow) -> dict[str, Any]:
    return {
        "kernel": row.name,
        "calls": row.num_calls,
        "ms/step": round(row.step_ms, 4),
        "of roofline": _percent(row.share),
        "of read bandwidth": _percent(row.read_share),
        "of products": _percent(row.product_share),
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
