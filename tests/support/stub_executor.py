"""An executor without a model that checks what a model would silently get wrong.

Its KV cache holds token ids. Every step verifies that each earlier position of each row really
holds that row's token: a wrong block, a stale prefix or a lost chunk is an AssertionError. The
sampled token is a hash of the whole sequence, so that any slip shows in the output.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from octavo.engine.messages import TokenLogprobs
from octavo.engine.plan import RowError, StepResult
from octavo.interfaces.executor import CacheGroup, Executor, ExecutorFacts, StepCosts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.plan import RowAdvance, RowStart, StepPlan

VOCAB = 997


def next_token(token_ids: Sequence[int], seed: int = 0) -> int:
    """Return the token that the stub model samples after `token_ids`."""
    value = seed * 7919 + 17
    for token_id in token_ids:
        value = (value * 31 + token_id + 1) % 1_000_003
    return value % VOCAB


def expected_output(prompt: Sequence[int], max_tokens: int, seed: int = 0) -> list[int]:
    """Return what a request must generate, whatever the schedule."""
    ids = list(prompt)
    for _ in range(max_tokens):
        ids.append(next_token(ids, seed))
    return ids[len(prompt) :]


class _Row:
    def __init__(self, start: RowStart) -> None:
        self.token_ids = list(start.token_ids)
        self.seed = start.spec.seed
        self.groups: list[list[int]] = []
        self.num_prompt_tokens = start.spec.num_prompt_tokens


class _Handle:
    def __init__(self, executor: StubExecutor, plan: StepPlan) -> None:
        self._executor, self._plan = executor, plan
        self._result: StepResult | None = None

    def is_done(self) -> bool:
        return self._result is not None

    def compute(self) -> None:
        if self._result is None:
            self._result = self._executor.compute(self._plan)

    def result(self) -> StepResult:
        self._executor.drain(self)
        assert self._result is not None
        return self._result


class StubExecutor(Executor):
    """`is_late`: steps are computed when their result is asked for, not when submitted."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        max_model_len: int = 256,
        is_late: bool = False,
        costs: StepCosts | None = None,
        groups: tuple[CacheGroup, ...] = (CacheGroup(),),
        max_drafts: int = 0,
    ) -> None:
        super().__init__()
        self.block_size = block_size
        self.facts = ExecutorFacts(
            num_blocks,
            max_model_len,
            VOCAB,
            costs or StepCosts.linear(1.0, 0.1),
            groups=groups,
            max_logit_rows=1024,
            max_drafts=max_drafts,
        )
        self.plans: list[StepPlan] = []
        self.num_computed_tokens = 0
        self.fails_at_step: int | None = None
        self.bad_request_ids: set[str] = set()
        self._is_late = is_late
        self._kv: dict[tuple[int, int], int] = {}
        self._rows: dict[int, _Row] = {}
        self._names: dict[int, str] = {}
        self._queue: deque[_Handle] = deque()

    def start(self, config: Any) -> ExecutorFacts:
        del config
        return self.facts

    def submit(self, plan: StepPlan) -> _Handle:
        self.plans.append(plan)
        handle = _Handle(self, plan)
        self._queue.append(handle)
        assert len(self._queue) <= 2, "more than two steps in flight"
        if not self._is_late:
            handle.compute()
        return handle

    def drain(self, until: _Handle) -> None:
        """Compute in order up to and including a handle."""
        while self._queue:
            handle = self._queue.popleft()
            handle.compute()
            if handle is until:
                return

    def compute(self, plan: StepPlan) -> StepResult:
        if self.fails_at_step == plan.step:
            raise RuntimeError("the device is gone")
        for row in (*plan.ends, *plan.pauses):
            del self._rows[row]
        for start in plan.starts:
            assert start.row not in self._rows, "a row was started while in use"
            self._rows[start.row] = _Row(start)
            self._names[start.row] = start.request_id
        result = StepResult(plan.step, [()] * len(plan.advances))
        for index, advance in enumerate(plan.advances):
            self._advance(index, advance, result)
        return result

    def _advance(self, index: int, advance: RowAdvance, result: StepResult) -> None:
        row = self._rows[advance.row]
        row.groups = row.groups or [[] for _ in self.facts.groups]
        for mine, new in zip(row.groups, advance.new_block_ids, strict=False):
            mine.extend(new)
        end = advance.start + advance.num_tokens
        known = [*row.token_ids, *advance.drafts]
        assert end <= len(known), "a token is computed that nobody knows"
        for blocks, group in zip(row.groups, self.facts.groups, strict=True):
            first = 0 if group.reach is None else max(0, advance.start - group.reach)
            for position in range(first, advance.start):
                held = self._kv.get(self._cell(blocks, position))
                assert held == known[position], (
                    f"row {advance.row}: position {position} holds {held}, not {known[position]}"
                )
            for position in range(advance.start, end):
                self._kv[self._cell(blocks, position)] = known[position]
        self.num_computed_tokens += advance.num_tokens
        if advance.is_prompt_scored:
            last = min(end, row.num_prompt_tokens - 1)
            targets = row.token_ids[advance.start + 1 : last + 1]
            result.prompt_logprobs[index] = [TokenLogprobs(t, -1.0, 1) for t in targets]
        if self._names[advance.row] in self.bad_request_ids:
            result.errors[index] = RowError("NaN")
        if advance.is_sampling:
            assert end == len(known), "sampling before the end is known"
            accepted = []
            for draft in (*advance.drafts, None):
                accepted.append(next_token(row.token_ids, row.seed))
                row.token_ids.append(accepted[-1])
                if accepted[-1] != draft:
                    break
            result.token_ids[index] = tuple(accepted)
            if advance.num_drafts_wanted:
                result.drafts[index] = self._guess(row, advance.num_drafts_wanted)

    @staticmethod
    def _guess(row: _Row, limit: int) -> tuple[int, ...]:
        """Return what will be sampled, and after some rows a wrong token."""
        ids = list(row.token_ids)
        for place in range(limit):
            ids.append(next_token(ids, row.seed) ^ (len(ids) % 5 == place))
        return tuple(ids[len(row.token_ids) :])

    def _cell(self, blocks: list[int], position: int) -> tuple[int, int]:
        block_id = blocks[position // self.block_size]
        assert block_id, "the null block was handed out"
        return block_id, position % self.block_size

    def close(self) -> None:
        self._rows.clear()
