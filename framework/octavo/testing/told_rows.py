"""What an executor has been told of its rows, and whether it is all that it must know (S14).

Knows plans, and the requests behind them. Does not know budgets, policies or turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from octavo.engine.plan import RowAdvance, RowStart, StepPlan
    from octavo.engine.request import Request
    from octavo.engine.scheduled_step import ScheduledStep
    from octavo.engine.scheduling import SchedulingCore


class Marks(NamedTuple):
    """How far a request was before a step was planned."""

    num_wanted: int
    num_scheduled: int
    num_known: int
    num_placeholders: int
    num_in_flight: int
    epoch: int
    order_key: Any


def marks_of(request: Request, order_key: Any = None) -> Marks:
    """Return how far a request is now; it wants nothing while drafts of it are in flight."""
    return Marks(
        max(0, request.num_wanted),
        request.num_scheduled,
        len(request.token_ids) + request.num_placeholders,
        request.num_placeholders,
        request.num_in_flight,
        request.epoch,
        order_key,
    )


class ToldRows:
    """The rows as an executor knows them."""

    def __init__(self, core: SchedulingCore) -> None:
        self._core = core
        self._names: dict[int, str] = {}
        self._requests: dict[str, Request] = {}
        self._blocks: dict[int, list[list[int]]] = {}
        self._paused: set[str] = set()
        self.num_steps = 0

    def problems(self, scheduled: ScheduledStep, before: Mapping[Request, Marks]) -> Iterator[str]:
        """Take a plan that was just made, and yield what is wrong with it."""
        plan, core = scheduled.plan, self._core
        if plan.step != self.num_steps:
            yield f"the step after {self.num_steps - 1} is {plan.step}"
        self.num_steps = plan.step + 1
        yield from self._released(plan)
        behind = dict(zip((one.row for one in plan.advances), scheduled.requests, strict=False))
        for start in plan.starts:
            yield from self._started(start, behind.get(start.row))
        rows = {one.row: one.request_id for one in core.running}
        if rows != self._names:
            yield f"the rows in use are {rows}, and the executor knows of {self._names}"
        parts = len(plan.advances), len(behind), len(scheduled.requests), len(scheduled.epochs)
        if len(set(parts)) > 1:
            yield f"(shares, rows, requests, epochs) of a step are {parts}"
        for request, epoch, advance in zip(
            scheduled.requests, scheduled.epochs, plan.advances, strict=False
        ):
            if epoch != request.epoch or advance.row != request.row:
                yield f"{request.request_id} is in row {request.row}, the plan has {advance.row}"
            yield from self._advanced(request, advance, before[request])
        in_plan = set(scheduled.requests)
        for request, marks in before.items():
            if request not in in_plan:
                yield from _left_out(request, marks)

    def _released(self, plan: StepPlan) -> Iterator[str]:
        for row in (*plan.ends, *plan.pauses):
            name = self._names.pop(row, None)
            self._blocks.pop(row, None)
            if name is None:
                yield f"row {row} is released, and was not in use"
                continue
            if row in plan.pauses:
                self._paused.add(name)
            elif not self._has_ended(name):
                yield f"the executor is told that {name} ended, which goes on"
        for name in plan.drops:
            if name not in self._paused:
                yield f"{name} is to be forgotten, and was not paused"
            self._paused.discard(name)
        self._paused -= {one.request_id for one in plan.starts}
        if kept := sorted(filter(self._has_ended, self._paused)):
            yield f"{kept} ended, and the executor is not told"

    def _has_ended(self, name: str) -> bool:
        return self._requests[name].state is RequestState.FINISHED

    def _started(self, start: RowStart, request: Request | None) -> Iterator[str]:
        name, row = start.request_id, start.row
        if row in self._names or not 0 <= row < self._core.limits.max_num_seqs:
            yield f"{name} is started in row {row}, which is in use or does not exist"
        self._names[row] = name
        self._blocks[row] = [[] for _ in self._core.allocator.context.groups]
        if request is None or request.request_id != name:
            yield f"{name} is started, and has no share of the step"
            return
        self._requests[name] = request
        source, spec = request.source, start.spec
        if start.token_ids != request.token_ids:
            yield f"{name} is started with {start.token_ids}, and has {request.token_ids}"
        said = spec.params, spec.seed, spec.choice, spec.num_prompt_tokens, spec.eos_token_ids
        params, length = source.params, len(source.prompt_token_ids)
        if said != (params, source.seed, source.choice, length, source.eos_token_ids):
            yield f"{name} is started as {spec}"

    def _advanced(self, request: Request, advance: RowAdvance, marks: Marks) -> Iterator[str]:
        name, num_drafts = request.request_id, len(advance.drafts)
        is_start = marks.num_wanted < 0
        start = request.num_computed if is_start else marks.num_scheduled
        end = advance.start + advance.num_tokens
        if advance.start != start or end != request.num_scheduled or advance.num_tokens < 1:
            yield f"{name} advances from {advance.start} to {end}, and was at {start}"
        is_last = end == marks.num_known + num_drafts and request.max_tokens > 0
        if advance.is_sampling != is_last:
            yield f"{name} advances to {end} of {marks.num_known}: sampling {advance.is_sampling}"
        if num_drafts and not num_drafts < advance.num_tokens:
            yield f"{name} has {num_drafts} drafts in a share of {advance.num_tokens}"
        if advance.is_prompt_scored == request.is_scored:
            yield f"{name} is scored: {request.is_scored}; asked for: {advance.is_prompt_scored}"
        counted = request.num_in_flight, request.num_placeholders
        if counted != (marks.num_in_flight + 1, marks.num_placeholders + advance.is_sampling):
            yield f"{name} has (steps, tokens) in flight {counted}, before the step it had {marks}"
        yield from self._blocks_told(request, advance)

    def _blocks_told(self, request: Request, advance: RowAdvance) -> Iterator[str]:
        told, groups = self._blocks.get(advance.row, []), request.table.groups
        for mine, new in zip(told, advance.new_block_ids, strict=False):
            mine.extend(new)
        for mine, ids in zip(told, groups, strict=False):
            if len(mine) != len(ids) or any(a != b and b for a, b in zip(mine, ids, strict=True)):
                yield f"{request.request_id} has the blocks {ids}, and the executor knows {mine}"
        needed = advance.start + advance.num_tokens + advance.num_drafts_wanted
        size, allocator = self._core.limits.block_size, self._core.allocator
        if (
            self._core.speculator.is_executors
            and needed > len(groups[0]) * size
            and allocator.can_allocate(request.table, needed)
        ):
            yield f"{request.request_id} has no room for its drafts, and there is some"


def _left_out(request: Request, marks: Marks) -> Iterator[str]:
    """What has no share of a step goes on as before, or lost its place."""
    counted = request.num_in_flight, request.num_placeholders
    if counted != (marks.num_in_flight, marks.num_placeholders):
        yield (
            f"{request.request_id} has no share of the step, and (steps, tokens) in flight "
            f"{counted}, before it {marks}"
        )
    if request.epoch == marks.epoch and request.num_scheduled != marks.num_scheduled:
        yield f"{request.request_id} has no share of the step, and moved to {request.num_scheduled}"
