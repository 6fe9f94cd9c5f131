"""An engine whose model computes nothing: what is left is the engine itself.

Knows the engine and the runner. Does not know any real model, op set or tokenizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.engine.build import build_engine
from octavo.execution.buffers import StepCapacity, make_buffers
from octavo.execution.cache_layout import CacheLayout
from octavo.execution.runner import ModelRunner, RunnerShape
from octavo.interfaces.executor import DoneStep, Executor, ExecutorFacts, StepCosts
from octavo.interfaces.sampler import SamplingOutputs

if TYPE_CHECKING:
    import torch

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.engine import Engine
    from octavo.engine.plan import StepPlan
    from octavo.interfaces.sampler import SamplingInputs

VOCAB_SIZE = 1000
MAX_QUEUED = 10**6
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
    attention = None
    is_recordable = False
    vocab_size = VOCAB_SIZE
    hidden_size = 1

    def forward(self, step: Any) -> None:
        """Compute nothing."""

    def logits(self, step: Any) -> None:
        """Compute nothing."""


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
        self._runner = ModelRunner(
            model, make_buffers(model, capacity, CacheLayout.of(()), 1), (), shape
        )
        self._shape = shape

    def start(self, config: Any) -> ExecutorFacts:
        """Nothing is loaded."""
        del config
        return ExecutorFacts(self._shape.num_blocks, self._shape.max_model_len, VOCAB_SIZE, _COSTS)

    def submit(self, plan: StepPlan) -> DoneStep:
        """Build the batch and sample nothing of interest."""
        return DoneStep(self._runner.run(plan))

    def close(self) -> None:
        """Nothing to release."""


def null_engine(config: ResolvedConfig, num_blocks: int, max_model_len: int) -> Engine:
    """Return an engine with the configured policies and allocator, no model and a long queue."""
    settings = config.engine
    shape = RunnerShape(
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
        max_model_len,
        settings.block_size,
        num_blocks,
    )
    patient = config.with_changes(engine={"max_num_queued_reqs": MAX_QUEUED})
    return build_engine(patient, NullExecutor(shape))
