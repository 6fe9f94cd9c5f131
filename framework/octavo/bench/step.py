"""Times the parts of a decode step, and the kernels of its layers.

Knows an engine around a `TimedExecutor`. Does not know models, kernels or how to print.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, Self

from octavo.bench.kernels import KernelTimer
from octavo.bench.offline import LatencyTimer, PromptMaker
from octavo.bench.timed_runner import TimedExecutor
from octavo.engine.build import build_engine
from octavo.errors import ConfigError
from octavo.openmp import let_threads_sleep

if TYPE_CHECKING:
    from octavo.bench.kernels import KernelRow
    from octavo.bench.roofline import Roofline
    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.engine import Engine

#: decode steps that are not counted
_WARM_STEPS: Final = 4


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A decode step of `num_seqs` sequences: medians, in milliseconds.

    `engine_ms` is the step without the executor: plan, commit, outputs. `fastest_layers_ms` is
    what the kernels' times are to be compared with, which are their fastest. `context_tokens` is
    what the first sequence had before the last step: the kernels are timed as it was in that one.
    """

    num_seqs: int
    context_tokens: int
    step_ms: float
    engine_ms: float
    build_ms: float
    layers_ms: float
    sample_ms: float
    fastest_layers_ms: float
    kernels: tuple[KernelRow, ...]

    @property
    def rate(self) -> float:
        """Return tokens a second, of all sequences."""
        return 1000 * self.num_seqs / self.step_ms

    @property
    def beside_layers_ms(self) -> float:
        """Return what a step takes beside its layers."""
        return self.step_ms - self.layers_ms


class StepMeter:
    """Owns an engine of the configured model and steps it. A context manager."""

    def __init__(self, config: ResolvedConfig) -> None:
        """Load the model.  Raises the errors of loading."""
        let_threads_sleep()
        executor = TimedExecutor()
        self._engine: Engine = build_engine(config, executor)
        self.runner = executor.runner
        self._kernels = KernelTimer()
        self._timer = LatencyTimer(self._engine, PromptMaker(self._engine.info.vocab_size))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the engine."""
        self._engine.close()

    @property
    def limits(self) -> Roofline:
        """Return what the machine can do at most, as far as `measure` has seen."""
        return self._kernels.limits

    def measure(self, num_seqs: int, context: int, num_steps: int) -> StepTimes:
        """Let sequences prefill `context` tokens each, and time `num_steps` decodes of all.

        Raises ConfigError where the model cannot have so many tokens.
        """
        num_all = _WARM_STEPS + num_steps
        longest = self._engine.info.max_model_len
        if context + num_all + num_seqs > longest:
            raise ConfigError(
                f"a context of {context} tokens and {num_all} steps are more than the model takes",
                f"max-model-len: {longest}",
            )
        ids, _ = self._timer.prefill(num_seqs, context, num_all)
        times = [self._step() for _ in range(num_all)][_WARM_STEPS:]
        last = int(self.runner.buffers.attention.seq_lens[0]) - 1
        kernels = self._kernels.time(self.runner.calls)
        self._engine.abort(ids)
        step, engine, build, layers, sample = zip(*times, strict=True)
        return StepTimes(
            num_seqs=num_seqs,
            context_tokens=last,
            step_ms=1000 * median(step),
            engine_ms=1000 * median(engine),
            build_ms=1000 * median(build),
            layers_ms=1000 * median(layers),
            sample_ms=1000 * median(sample),
            fastest_layers_ms=1000 * min(layers),
            kernels=tuple(kernels),
        )

    def _step(self) -> tuple[float, float, float, float, float]:
        """Make a step; return seconds of the whole, and of the parts in order of `StepTimes`."""
        parts = self.runner.parts
        parts.clear()
        start_s = time.perf_counter()
        self._engine.step()
        step_s = time.perf_counter() - start_s
        return (
            step_s,
            step_s - sum(one.total_s for one in parts),
            sum(one.build_s for one in parts),
            sum(one.layers_s for one in parts),
            sum(one.sample_s for one in parts),
        )
