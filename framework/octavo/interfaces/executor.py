"""The executor kind: where the model runs. Logits and hidden states never cross this wall.

Knows plans and results. Does not know policies, text or HTTP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from octavo.errors import UnsupportedError

if TYPE_CHECKING:
    from octavo.engine.plan import StepPlan, StepResult
    from octavo.interfaces.adapter import AdapterSpec
    from octavo.interfaces.grammar import GrammarSpec

    #: what requests may need beside the model
    Resource: TypeAlias = GrammarSpec | AdapterSpec


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What a step costs by its tokens, measured once at start and then fixed.

    `points` are (tokens, milliseconds), both rising, of steps without context. Between them cost
    is linear; beyond the last it goes on as between the last two. Attending to earlier positions
    comes on top: `per_context_ms` for each pair of a token and a position before it.
    """

    points: tuple[tuple[int, float], ...]
    per_context_ms: float = 0.0

    @classmethod
    def linear(cls, fixed_ms: float, per_token_ms: float) -> StepCosts:
        """Return costs along one line."""
        return cls(((0, fixed_ms), (1, fixed_ms + per_token_ms)))

    def predict_ms(self, num_tokens: int, num_pairs: int = 0) -> float:
        """Return the predicted time of a step of so many tokens, and pairs with their context."""
        start, low_ms, slope_ms = self._segment(num_tokens)
        return low_ms + (num_tokens - start) * slope_ms + num_pairs * self.per_context_ms

    def _segment(self, num_tokens: int) -> tuple[int, float, float]:
        """Return where the line starts that holds for `num_tokens`: tokens, ms, ms per token."""
        last = len(self.points) - 2
        index = 0
        while index < last and num_tokens >= self.points[index + 1][0]:
            index += 1
        (start, low_ms), (end, high_ms) = self.points[index], self.points[index + 1]
        return start, low_ms, (high_ms - low_ms) / (end - start)


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers whose tokens read equally far back: `reach` positions before their own; None = all.

    Each request has one block table for each group.
    """

    reach: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutorFacts:
    """What a started executor offers. `num_blocks` counts the null block.

    `groups` are those of the model's layers. `max_logit_rows`: how many rows of logits a step may
    have, one for each sampled token and each draft. `max_drafts`: how many drafts the executor's
    own proposer makes for one request at most, 0 without one, and `draft_ms` what each takes it.
    `can_roll_back`: a token that was
    computed may be taken back, so that drafts can be verified.

    `weight_bytes` is what one decode step reads of the weights as they are in the file, and
    `num_multiplied_weights` how many weights each token is multiplied with: for benchmarks.
    """

    num_blocks: int
    max_model_len: int
    vocab_size: int
    costs: StepCosts
    weight_bytes: int = 0
    num_multiplied_weights: int = 0
    groups: tuple[CacheGroup, ...] = (CacheGroup(),)
    max_logit_rows: int = 0
    max_drafts: int = 0
    draft_ms: float = 0.0
    can_roll_back: bool = True


class StepHandle(Protocol):
    """A submitted step."""

    def is_done(self) -> bool:
        """Return whether `result` would not wait."""

    def result(self) -> StepResult:
        """Wait for the step and return its result. Raises what the step raised."""


class DoneStep:
    """The handle of a step that had run when it was submitted."""

    __slots__ = ("_result",)

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def is_done(self) -> bool:
        """Return True."""
        return True

    def result(self) -> StepResult:
        """Return the result."""
        return self._result


class Clock(Protocol):
    """A time that is not the system's, in seconds."""

    def __call__(self) -> float:
        """Return the time."""

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""


class Executor(ABC):
    """Runs plans in the order in which they were submitted.

    X1  results come back in order; a step sees the effects of all steps before it, sampled
        tokens included.
    X2  an error of one request (NaN logits, a raising processor) is in `StepResult.errors` and
        leaves the others alone.
    X3  `close` ends everything it started; twice is fine.
    X4  `prepare` may be called between any two steps and never waits; a request that needs a
        resource is submitted only once it is there.
    X5  `failed` raises, from any thread, what ended it while no step may have been running.
    X6  its facts are those of a model: blocks, lengths, and costs that rise with the tokens.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options
        self.failed: Future[None] = Future()

    @abstractmethod
    def start(self, config: Any) -> ExecutorFacts:
        """Load the model named by the resolved config and measure. Raises typed load errors."""

    @abstractmethod
    def submit(self, plan: StepPlan) -> StepHandle:
        """Start a step. Two may be in flight."""

    def prepare(self, resource: Resource) -> Future[str]:
        """Make a grammar or an adapter ready, away from the steps. Returns at once.

        The future yields a text that stands for the content of the resource (a digest), or raises
        the typed error of the request that brought it. What is ready already is done at once.
        """
        kind = type(resource).__name__
        raise UnsupportedError(f"the executor {type(self).__name__} cannot prepare a {kind}")

    def discard(self, resource: Resource) -> None:
        """Forget a resource as soon as no running request needs it; unknown ones are ignored."""
        del resource

    def clock(self) -> Clock | None:
        """Return the engine's clock; None for the system's."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release the model."""
