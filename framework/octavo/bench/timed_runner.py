"""A model in this process whose steps note how long each of their parts took.

Knows runners and how one is loaded. Does not know requests, kernels or how to print.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import ConfigError, EngineError
from octavo.execution.load import facts_of, load_runner
from octavo.execution.measure import measure_costs
from octavo.execution.runner import ModelRunner
from octavo.interfaces.executor import DoneStep, Executor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.plan import StepPlan, StepResult
    from octavo.execution.recording import RecordedCall
    from octavo.interfaces.executor import ExecutorFacts
    from octavo.interfaces.platform import Platform


@dataclass(frozen=True, slots=True)
class PartTimes:
    """One step of a runner, in seconds.

    `build_s`: until the batch lies in its buffers. `layers_s`: embedding to logits. `sample_s`:
    the draws, and all that is done with them.
    """

    build_s: float
    layers_s: float
    sample_s: float

    @property
    def total_s(self) -> float:
        """Return the whole step's time."""
        return self.build_s + self.layers_s + self.sample_s


class TimedRunner(ModelRunner):
    """A runner that appends to `parts` with each step."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.parts: list[PartTimes] = []
        self._layers_s = (0.0, 0.0)

    def run(self, plan: StepPlan) -> StepResult:
        """Execute one step, and note its times."""
        start_s = time.perf_counter()
        result = super().run(plan)
        end_s = time.perf_counter()
        before_s, after_s = self._layers_s
        self.parts.append(PartTimes(before_s - start_s, after_s - before_s, end_s - after_s))
        return result

    def _run_layers(self) -> None:
        before_s = time.perf_counter()
        super()._run_layers()
        self._layers_s = before_s, time.perf_counter()

    @property
    def calls(self) -> Sequence[RecordedCall]:
        """Return the recorded step; empty where the model's steps cannot be recorded."""
        return () if self._record is None else self._record.calls


class TimedExecutor(Executor):
    """Runs a `TimedRunner` in the calling thread."""

    def __init__(self) -> None:
        super().__init__()
        self._runner: TimedRunner | None = None

    def start(self, config: ResolvedConfig) -> ExecutorFacts:
        """Load the model and warm it up.  Raises ConfigError for one that is split."""
        size = config.engine.tensor_parallel_size
        if size > 1:
            raise ConfigError(
                f"parts of a step are timed in one process, and tensor-parallel-size is {size}",
                "leave tensor-parallel-size at 1",
            )
        platform: Platform = config.build("platform")
        torch.set_num_threads(config.engine.threads or platform.num_threads())
        self._runner = load_runner(config, platform, runner_type=TimedRunner)
        return facts_of(self._runner, measure_costs(self._runner, is_rough=True))

    @property
    def runner(self) -> TimedRunner:
        """Return the loaded model."""
        if self._runner is None:
            raise EngineError("the executor is not running")
        return self._runner

    def submit(self, plan: StepPlan) -> DoneStep:
        """Run the step now."""
        return DoneStep(self.runner.run(plan))

    def close(self) -> None:
        """Drop the model."""
        if self._runner is not None:
            self._runner.resources.close()
            self._runner = None
