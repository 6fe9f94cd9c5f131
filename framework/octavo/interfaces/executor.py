"""The executor kind: where the model runs. Logits and hidden states never cross this wall.

Knows plans and results. Does not know policies, text or HTTP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from octavo.engine.plan import StepPlan, StepResult


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What a step costs, measured once at start and fixed: fixed + tokens x per_token, in ms."""

    fixed_ms: float
    per_token_ms: float
    per_sequence_ms: float = 0.0

    def predict_ms(self, num_tokens: int, num_sequences: int) -> float:
        """Return the predicted time of a step."""
        return self.fixed_ms + num_tokens * self.per_token_ms + num_sequences * self.per_sequence_ms


@dataclass(frozen=True, slots=True)
class ExecutorFacts:
    """What a started executor offers. `num_blocks` counts the null block.

    `weight_bytes` is what one decode step reads of the weights as they are in the file, and
    `num_multiplied_weights` how many weights each token is multiplied with: for benchmarks.
    """

    num_blocks: int
    max_model_len: int
    vocab_size: int
    costs: StepCosts
    weight_bytes: int = 0
    num_multiplied_weights: int = 0


class StepHandle(Protocol):
    """A submitted step."""

    def is_done(self) -> bool:
        """Return whether `result` would not wait."""

    def result(self) -> StepResult:
        """Wait for the step and return its result. Raises what the step raised."""


class Executor(ABC):
    """Runs plans in the order in which they were submitted.

    X1  results come back in order; a step sees the effects of all steps before it, sampled
        tokens included.
    X2  an error of one request (NaN logits, a raising processor) is in `StepResult.errors` and
        leaves the others alone.
    X3  `close` ends everything it started; twice is fine.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def start(self, config: Any) -> ExecutorFacts:
        """Load the model named by the resolved config and measure. Raises typed load errors."""

    @abstractmethod
    def submit(self, plan: StepPlan) -> StepHandle:
        """Start a step. Two may be in flight."""

    @abstractmethod
    def close(self) -> None:
        """Release the model."""
