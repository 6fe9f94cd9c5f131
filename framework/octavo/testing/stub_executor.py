"""An executor without a model that checks what a model would silently get wrong.

Its KV cache holds token ids. Every step verifies that each earlier position of each row really
holds that row's token: a wrong block, a stale prefix or a lost chunk is a PromiseBroken. The
sampled token is a hash of the whole sequence, so that any slip shows in the output.

Knows plans and results. Does not know models, tensors or the schedule's reasons.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from octavo.engine.messages import TokenLogprobs
from octavo.engine.plan import RowError, StepResult
from octavo.interfaces.executor import Executor, ExecutorFacts, StepCosts
from octavo.testing.invariants import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.plan import RowAdvance, RowStart, StepPlan

VOCAB = 997
_MOST_IN_FLIGHT = 2


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


def require(condition: object, message: str) -> None:
    """Raise PromiseBroken unless the condition holds."""
    if not condition:
        raise PromiseBroken(message)


def stub_facts(num_blocks: int, **others: Any) -> ExecutorFacts:
    """Return the facts of an executor without a model; `num_blocks` counts the null block."""
    fields = {
        "max_model_len": 256,
        "vocab_size": VOCAB,
        "costs": StepCosts.linear(1.0, 0.1),
        "max_logit_rows": 1024,
    }
    return ExecutorFacts(num_blocks=num_blocks, **{**fields, **others})


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
        """Return whether it was computed."""
        return self._result is not None

    def compute(self) -> None:
        """Run the step, once."""
        if self._result is None:
            self._result = self._executor.compute(self._plan)

    def result(self) -> StepResult:
        """Run what was submitted before, then this."""
        self._executor.drain(self)
        if self._result is None:
            raise PromiseBroken("the result of a step was asked for twice")
        return self._result


class StubExecutor(Executor):
    """Samples by hash. `is_late`: steps are computed when their result is asked for, not before.

    `stub_facts` makes the facts.
    """

    def __init__(self, facts: ExecutorFacts, block_size: int, *, is_late: bool = False) -> None:
        super().__init__()
        self.block_size = block_size
        self.facts = facts
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
        """Return the facts that it was made with."""
        del config
        return self.facts

    def prepare(self, resource: Any) -> Future[str]:
        """Return what is ready at once."""
        ready: Future[str] = Future()
        ready.set_result(repr(resource))
        return ready

    def submit(self, plan: StepPlan) -> _Handle:
        """Take a step; compute it now, or when its result is asked for."""
        self.plans.append(plan)
        handle = _Handle(self, plan)
        self._queue.append(handle)
        require(len(self._queue) <= _MOST_IN_FLIGHT, "more than two steps are in flight")
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
        """Do what a model would: release rows, start rows, advance rows."""
        if self.fails_at_step == plan.step:
            raise RuntimeError("the device is gone")
        for row in (*plan.ends, *plan.pauses):
            require(self._rows.pop(row, None), f"row {row} ends and was not in use")
        for start in plan.starts:
            require(start.row not in self._rows, f"row {start.row} was started while in use")
            self._rows[start.row] = _Row(start)
            self._names[start.row] = start.request_id
        result = StepResult(plan.step, [()] * len(plan.advances))
        for index, advance in enumerate(plan.advances):
            self._advance(index, advance, result)
        return result

    def _advance(self, index: int, advance: RowAdvance, result: StepResult) -> None:
        require(advance.row in self._rows, f"row {advance.row} advances and was not started")
        row = self._rows[advance.row]
        row.groups = row.groups or [[] for _ in self.facts.groups]
        for mine, new in zip(row.groups, advance.new_block_ids, strict=False):
            mine.extend(new)
        end = advance.start + advance.num_tokens
        known = [*row.token_ids, *advance.drafts]
        require(end <= len(known), f"row {advance.row}: position {end - 1} has no known token")
        for blocks, group in zip(row.groups, self.facts.groups, strict=True):
            first = 0 if group.reach is None else max(0, advance.start - group.reach)
            for position in range(first, advance.start):
                held = self._kv.get(self._cell(blocks, position))
                what = f"token {held}" if held is not None else "nothing"
                require(
                    held == known[position],
                    f"row {advance.row} ({self._names[advance.row]}): the cache holds {what} at "
                    f"position {position}, where its token is {known[position]}",
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
            require(end == len(known), f"row {advance.row} samples before its last token")
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
        index = position // self.block_size
        require(index < len(blocks), f"position {position} has no block")
        block_id = blocks[index]
        require(block_id, f"position {position} is in the null block")
        return block_id, position % self.block_size

    def close(self) -> None:
        """Forget the rows."""
        self._rows.clear()
