"""What goes through the executor's wall: a plan in, a small result out. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from octavo.engine.messages import TokenLogprobs  # noqa: TC001 - as above
from octavo.errors import OctavoError, RequestError
from octavo.interfaces.adapter import AdapterUse  # noqa: TC001 - as above
from octavo.interfaces.grammar import GrammarSpec, ReasoningSpec  # noqa: TC001 - as above
from octavo.sampling_params import SamplingParams  # noqa: TC001 - as above


@dataclass(slots=True)
class RowSpec:
    """What sampling needs of a request, constant over its life."""

    params: SamplingParams
    seed: int
    choice: int
    num_prompt_tokens: int
    eos_token_ids: tuple[int, ...] = ()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    grammar: GrammarSpec | None = None
    adapters: tuple[AdapterUse, ...] = ()
    reasoning: ReasoningSpec | None = None
    pooling: str | None = None


@dataclass(slots=True)
class RowStart:
    """A request that enters the running set, new or after preemption.

    After a preemption its sampling goes on from the state that was kept under `request_id`.
    """

    row: int
    request_id: str
    token_ids: list[int]  # prompt and output so far
    spec: RowSpec


class RowAdvance(msgspec.Struct):
    """One request's share of a step: positions start .. start + num_tokens.

    The last tokens are `drafts`: guesses, each of which is verified by the row of logits before
    it. A sampling advance has `len(drafts) + 1` rows of logits and yields 1 to as many tokens.
    """

    row: int
    start: int
    num_tokens: int
    new_block_ids: Sequence[Sequence[int]]  # by group: appended to the row's tables beforehand
    is_sampling: bool  # the last position yields a token
    is_prompt_scored: bool = False  # prompt logprobs or pooling are wanted of these positions
    drafts: tuple[int, ...] = ()
    num_drafts_wanted: int = 0  # how many the executor may propose after this step


@dataclass(slots=True)
class StepPlan:
    """One step. Rows are released first (`ends`, `pauses`), then `starts`, then `advances`.

    `pauses` are rows of preempted requests: what sampling has gathered about them is kept by
    their request ids until they start again, or until `drops` names them.
    """

    step: int
    ends: list[int] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    starts: list[RowStart] = field(default_factory=list)
    advances: list[RowAdvance] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens that the step computes."""
        return sum(advance.num_tokens for advance in self.advances)


@dataclass(slots=True)
class RowError:
    """Why one request failed: `is_refused` and `param` as in `EngineOutput`."""

    text: str
    is_refused: bool = False
    param: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> RowError:
        """Return what is told of an exception: a RequestError is a fault of the request."""
        if isinstance(error, RequestError):
            return cls(str(error), is_refused=True, param=error.param)
        is_ours = isinstance(error, OctavoError)
        return cls(str(error) if is_ours else f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class StepResult:
    """Aligned with `plan.advances`: the accepted ids of each (empty when it samples nothing).

    `logprobs` and `prompt_logprobs` hold entries by index of the advance, where asked for.
    `pooled`: by index, the vector of a prompt that is computed now, as in `EngineOutput`.
    `drafts`: by index, what the executor guesses to come next. `errors`: by index, why that
    request failed; the others are good.
    """

    step: int
    token_ids: list[tuple[int, ...]]
    logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    drafts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    errors: dict[int, RowError] = field(default_factory=dict)
    pooled: dict[int, bytes] = field(default_factory=dict)
