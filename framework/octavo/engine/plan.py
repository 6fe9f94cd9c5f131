"""What goes through the executor's wall: a plan in, a small result out. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine.messages import TokenLogprobs
    from octavo.interfaces.adapter import AdapterUse
    from octavo.interfaces.grammar import GrammarSpec
    from octavo.sampling_params import SamplingParams


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


@dataclass(slots=True)
class RowStart:
    """A request that enters the running set, new or after preemption."""

    row: int
    request_id: str
    token_ids: list[int]  # prompt and output so far
    spec: RowSpec


@dataclass(slots=True)
class RowAdvance:
    """One request's share of a step: positions start .. start + num_tokens."""

    row: int
    start: int
    num_tokens: int
    new_block_ids: list[int]  # appended to the row's block table before the step
    is_sampling: bool  # the last position yields a token
    is_prompt_scored: bool = False  # prompt logprobs are wanted of these positions


@dataclass(slots=True)
class StepPlan:
    """One step. `ends` are applied first (rows released), then `starts`, then `advances`."""

    step: int
    ends: list[int] = field(default_factory=list)
    starts: list[RowStart] = field(default_factory=list)
    advances: list[RowAdvance] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens that the step computes."""
        return sum(advance.num_tokens for advance in self.advances)


@dataclass(slots=True)
class StepResult:
    """Aligned with `plan.advances`: the accepted ids of each (empty when it samples nothing).

    `logprobs` and `prompt_logprobs` hold entries by index of the advance, where asked for.
    `errors`: by index of the advance, why that request failed; the others are good.
    """

    step: int
    token_ids: list[tuple[int, ...]]
    logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
