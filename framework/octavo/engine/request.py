"""A request inside the engine: how far it is, and where it stands.

There are no phases: `num_scheduled` chases `num_tokens`, by chunks of any size.

    token_ids      prompt ............ | output .......... | placeholders (sampled, uncommitted)
    num_computed   committed KV ---------------------->
    num_scheduled  with the steps in flight ----------------------->
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from octavo.engine.plan import RowSpec, RowStart
from octavo.interfaces.allocator import BlockTable

if TYPE_CHECKING:
    from octavo.engine.messages import EngineRequest, TokenLogprobs
    from octavo.sampling_params import SamplingParams


class RequestState(IntEnum):
    """Where a request stands."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2


class Request:
    """One sequence in the engine. Satisfies `octavo.interfaces.scheduler.RequestView`."""

    __slots__ = (
        "arrival_s", "drafts", "epoch", "finish_reason", "held_by", "is_scored",
        "max_tokens", "metadata", "num_cached_tokens", "num_computed", "num_in_flight",
        "num_placeholders", "num_preemptions", "num_prompt_tokens", "num_scheduled",
        "num_sent_blocks", "order_key", "priority", "prompt_logprobs", "request_id", "row",
        "sequence_number", "source", "state", "table", "token_ids",
    )  # fmt: skip

    def __init__(self, source: EngineRequest, sequence_number: int, num_groups: int = 1) -> None:
        self.source = source
        self.request_id = source.request_id
        self.sequence_number = sequence_number
        self.priority = source.priority
        self.arrival_s = source.arrival_s
        self.metadata: dict[str, Any] = source.metadata
        self.num_prompt_tokens = len(source.prompt_token_ids)
        self.max_tokens = source.max_tokens
        self.token_ids: list[int] = list(source.prompt_token_ids)
        self.table = BlockTable.of(num_groups, (source.cache_salt, ()))
        self.table.params = source.params
        self.state = RequestState.WAITING
        self.held_by: set[str] = set()
        self.order_key: Any = None
        self.finish_reason: str | None = None
        self.prompt_logprobs: list[TokenLogprobs | None] | None = None
        self.num_cached_tokens = 0
        self.num_preemptions = 0
        self.epoch = 0  # grows with each preemption: results of older steps hold no KV any more
        # all that is wanted of the prompt's positions is there
        self.is_scored = source.params.prompt_logprobs is None and source.pooling is None
        self._reset_progress()

    def _reset_progress(self) -> None:
        self.row = -1
        self.num_computed = 0
        self.num_scheduled = 0
        self.num_placeholders = 0
        self.num_in_flight = 0
        self.num_sent_blocks = 0
        self.drafts: tuple[int, ...] = ()  # the executor's guesses, for the next step

    @property
    def params(self) -> SamplingParams:
        """Return the parameters, declared ones among them."""
        return self.source.params

    @property
    def may_reuse(self) -> bool:
        """Return whether cached positions serve as well as computed ones."""
        return self.is_scored or self.source.pooling == "last"

    @property
    def num_output_tokens(self) -> int:
        """Return the number of committed output tokens."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_computed_tokens(self) -> int:
        """Return the number of tokens whose KV is committed."""
        return self.num_computed

    @property
    def is_decided(self) -> bool:
        """Return whether the last token that `max_tokens` allows is sampled, committed or not."""
        num_sampled = len(self.token_ids) + self.num_placeholders - self.num_prompt_tokens
        return num_sampled >= self.max_tokens > 0

    @property
    def num_wanted(self) -> int:
        """Return how many tokens could be computed now; none when the last one is decided."""
        num_known = len(self.token_ids) + self.num_placeholders
        if 0 < self.max_tokens <= num_known - self.num_prompt_tokens:
            return 0
        return num_known - self.num_scheduled

    def to_start(self) -> RowStart:
        """Return all that the executor is told of the request when it enters the running set."""
        source = self.source
        spec = RowSpec(
            source.params,
            source.seed,
            source.choice,
            self.num_prompt_tokens,
            source.eos_token_ids,
            source.bad_words_ids,
            source.grammar,
            source.adapters,
            source.reasoning,
            source.pooling,
        )
        return RowStart(self.row, self.request_id, list(self.token_ids), spec)

    def preempt(self) -> None:
        """Forget all computed KV. Blocks must have been freed; tokens stay."""
        self.epoch += 1
        self.num_preemptions += 1
        num_in_flight, num_placeholders = self.num_in_flight, self.num_placeholders
        self._reset_progress()
        # Steps in flight still bring their tokens; the request may not resume before.
        self.num_in_flight, self.num_placeholders = num_in_flight, num_placeholders
        self.state = RequestState.WAITING
