"""The scheduler kind: *policy only*.

Knows who asks for what. Does not know blocks, tensors or budgets: the mechanism
(`octavo.engine.scheduling`) keeps those, so that no policy can break them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from octavo.sampling_params import SamplingParams


class RequestView(Protocol):
    """What a policy may read of a request. Nothing here is to be assigned."""

    @property
    def request_id(self) -> str:
        """Return the id that the front end gave."""

    @property
    def arrival_s(self) -> float:
        """Return when the request came, on the clock of `view.now_s`."""

    @property
    def sequence_number(self) -> int:
        """Return how many requests came before."""

    @property
    def priority(self) -> int:
        """Return the priority: lower is more urgent."""

    @property
    def num_prompt_tokens(self) -> int:
        """Return the length of the prompt."""

    @property
    def num_output_tokens(self) -> int:
        """Return how many tokens were generated."""

    @property
    def num_computed_tokens(self) -> int:
        """Return how many tokens have their KV computed."""

    @property
    def max_tokens(self) -> int:
        """Return how many tokens may be generated at most."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return what the caller attached for policies: `user` and `session_id`, if given."""

    @property
    def params(self) -> SamplingParams:
        """Return the parameters: `MyParams.read(request.params)` has those that are declared."""


def _none_cached(request: RequestView) -> int:
    del request
    return 0


@dataclass(slots=True)
class SchedulerView:
    """The state of the engine as a policy sees it, at the moment `now_s` (seconds).

    `step` counts the steps that were planned before. `waiting` and `running` are the queues
    themselves, as they were last ordered: to be read within a call, never kept or changed.
    `num_cached_tokens(request)` says how many leading tokens of a waiting request are cached now,
    of a running one how many are computed. It looks all blocks up, so ask where it matters.
    """

    now_s: float = 0.0
    num_running: int = 0
    num_waiting: int = 0
    num_free_blocks: int = 0
    num_total_blocks: int = 0
    max_num_seqs: int = 0
    step: int = 0
    waiting: Sequence[RequestView] = ()
    running: Sequence[RequestView] = ()
    num_cached_tokens: Callable[[RequestView], int] = _none_cached


class SchedulerPolicy:
    """Five small decisions with defaults. Subclass and override what differs.

    Promises (numbered; the mechanism keeps S1-S3, S5, S8, S13 and S14 whatever the policy says):

    S1  budgets (tokens, sequences, milliseconds) are never exceeded.
    S2  no request is lost or duplicated.
    S3  work-conserving over requests that are not held.
    S4  every feasible request ends in bounded steps: `admit` may not refuse for ever.
    S5  abort in any state frees everything.
    S6  tokens do not depend on chunking, preemption or batching.
    S7  same trace, same schedule: no component reads a clock; `view.now_s` is the time.
    S8  depth 0 and depth 1 give the same tokens.
    S9  no method raises; `victim` is an index of `running`, `chunk` from 1 to what it was given,
        and keys of `order` can be compared.
    S10  where `is_order_static`, the key of a request stays as it is while the request waits.
    S11  what a policy is shown it does not change.
    S12  what it is shown of steps, and what is counted of preemptions and hits, is true.
    S13  turns are taken in the order of the keys, those that run with one token first.
    S14  the executor is told of each row when it starts, gets blocks, pauses and ends, once.
    S15  a request that has ended is not kept: a server runs for months.
    """

    #: True when `order` never changes for a request while it waits (keys are then kept sorted).
    #: Otherwise it is asked once a step, and of each request again before it is admitted: one
    #: whose key has grown since, by what was admitted before it, goes back to its place.
    is_order_static: bool = True

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def order(self, request: RequestView, view: SchedulerView) -> Any:
        """Return the sort key of `request`: smaller keys run first. Ties go by arrival."""
        del view
        return request.sequence_number

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        """Return whether a waiting request may start now, given that there is room for it."""
        del request, view
        return True

    def victim(self, running: Sequence[RequestView], view: SchedulerView) -> int:
        """Return the index of the request to preempt when memory runs out.

        `running` is never empty and is sorted by `order`; the default takes the last.
        """
        del view
        return len(running) - 1

    def chunk(self, request: RequestView, num_tokens: int, view: SchedulerView) -> int:
        """Return how many of `num_tokens`, which fit the budgets, to advance: at least 1."""
        del request, view
        return num_tokens

    def on_tokens(self, request: RequestView, num_tokens: int, view: SchedulerView) -> None:
        """Note that `num_tokens` of `request` were computed in a committed step."""
