"""Runs the model in the calling thread: `submit` returns when the step is done.

Knows the runner. Does not know policies or processes.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import ConfigError, EngineError
from octavo.execution.load import facts_of, load_runner
from octavo.execution.measure import measure_costs
from octavo.interfaces.executor import DoneStep, Executor

if TYPE_CHECKING:
    from concurrent.futures import Future

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.plan import StepPlan
    from octavo.execution.runner import ModelRunner
    from octavo.interfaces.executor import ExecutorFacts, Resource
    from octavo.interfaces.platform import Platform


class InlineExecutor(Executor):
    """One model in this process, on this thread."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._runner: ModelRunner | None = None

    def start(self, config: ResolvedConfig) -> ExecutorFacts:
        """Load the model, warm it up and measure what its steps cost."""
        if config.engine.tensor_parallel_size > 1:
            size = config.engine.tensor_parallel_size
            raise ConfigError(
                f"the executor 'inline' is one process, and tensor-parallel-size is {size}",
                "use --executor ranks, or leave the choice to 'auto'",
            )
        platform: Platform = config.build("platform")
        torch.set_num_threads(config.engine.threads or platform.num_threads())
        runner = load_runner(config, platform)
        max_drafts = runner.shape.max_drafts
        # costs decide how much a step may do, and whether drafts pay
        is_rough = config.engine.max_step_ms is None and max_drafts == 0
        costs = measure_costs(runner, max_drafts=max_drafts, is_rough=is_rough)
        self._runner = runner
        return facts_of(runner, costs)

    def submit(self, plan: StepPlan) -> DoneStep:
        """Run the step now."""
        return DoneStep(self._running().run(plan))

    def prepare(self, resource: Resource) -> Future[str]:
        """Make a grammar or an adapter ready, in a thread of its own."""
        return self._running().resources.prepare(resource)

    def discard(self, resource: Resource) -> None:
        """Forget a resource as soon as no running request needs it."""
        self._running().resources.discard(resource)

    def _running(self) -> ModelRunner:
        if self._runner is None:
            raise EngineError("the executor is not running")
        return self._runner

    def close(self) -> None:
        """Drop the model and its cache."""
        if self._runner is not None:
            self._runner.resources.close()
            self._runner = None
            gc.collect()
