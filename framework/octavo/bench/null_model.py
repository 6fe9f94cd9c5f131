"""An engine whose model computes nothing: what is left is the engine itself.

Knows the engine and the runner. Does not know any real model, op set or tokenizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.engine.budget import Limits
from octavo.engine.engine import Engine
from octavo.engine.messages import EngineInfo
from octavo.engine.scheduling import SchedulingCore
from octavo.execution.buffers import StepCapacity, make_buffers
from octavo.execution.runner import ModelRunner, RunnerShape
from octavo.interfaces.allocator import AllocatorContext
from octavo.interfaces.executor import Executor, ExecutorFacts, StepCosts
from octavo.interfaces.sampler import SamplingOutputs

if TYPE_CHECKING:
    import torch

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.plan import StepPlan, StepResult
    from octavo.interfaces.sampler import SamplingInputs

VOCAB_SIZE = 1000
_COSTS = StepCosts.linear(1.0, 0.01)


class _NullOps:
    """Samples token 5 without looking."""

    activation_dtype = "float32"

    def uniforms(
        self, seeds: np.ndarray, positions: np.ndarray, choices: np.ndarray, purpose: int
    ) -> np.ndarray:
        del positions, choices, purpose
        return np.zeros(len(seeds))

    def sample(self, logits: torch.Tensor, inputs: SamplingInputs) -> SamplingOutputs:
        del inputs
        return SamplingOutputs(np.full(len(logits), 5), np.zeros(len(logits), dtype=bool))


class _NullArchitecture:
    """Has no layers."""

    ops = _NullOps()
    vocab_size = VOCAB_SIZE
    hidden_size = 1

    def forward(self, step: Any) -> None:
        """Compute nothing."""

    def logits(self, step: Any) -> None:
        """Compute nothing."""


class _Done:
    def __init__(self, result: StepResult) -> None:
        self._result = result

    def is_done(self) -> bool:
        return True

    def result(self) -> StepResult:
        return self._result


class NullExecutor(Executor):
    """Keeps rows and builds batches as the real one does, and runs no model."""

    def __init__(self, shape: RunnerShape) -> None:
        super().__init__()
        model: Any = _NullArchitecture()
        capacity = StepCapacity(
            shape.max_num_tokens,
            shape.max_num_seqs,
            shape.max_num_seqs,
            shape.max_blocks_per_seq,
            shape.block_size,
        )
        self._runner = ModelRunner(model, make_buffers(model, capacity, []), (), shape)
        self._shape = shape

    def start(self, config: Any) -> ExecutorFacts:
        """Nothing is loaded."""
        del config
        return ExecutorFacts(self._shape.num_blocks, self._shape.max_model_len, VOCAB_SIZE, _COSTS)

    def submit(self, plan: StepPlan) -> _Done:
        """Build the batch and sample nothing of interest."""
        return _Done(self._runner.run(plan))

    def close(self) -> None:
        """Nothing to release."""


def null_engine(config: ResolvedConfig, num_blocks: int, max_model_len: int) -> Engine:
    """Return an engine with the configured policies and allocator, and no model."""
    settings = config.engine
    shape = RunnerShape(
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
        max_model_len,
        settings.block_size,
        num_blocks,
    )
    executor = NullExecutor(shape)
    context = AllocatorContext(
        num_blocks=num_blocks,
        block_size=settings.block_size,
        max_model_len=max_model_len,
        enable_prefix_caching=settings.enable_prefix_caching,
        eviction=config.build("eviction"),
    )
    allocator = config.build("allocator", context=context)
    limits = Limits(
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
        settings.max_step_ms,
        settings.block_size,
        max_model_len,
        10**6,
    )
    core = SchedulingCore(config.build("scheduler"), allocator, limits, _COSTS)
    info = EngineInfo(VOCAB_SIZE, max_model_len, allocator.capacity_tokens, 20, 10**6)
    return Engine(core, executor, info, depth=settings.depth)
