"""The scheduling mechanism: who advances by how many tokens, and with which blocks.

Policies order, admit, choose victims and chunks; this module keeps the budgets, the blocks and
the requests, so that no policy can break them. It never sees a tensor, a text or a clock.

A step is planned in three passes:

    1. decodes      running requests that want one token: they never wait for a prefill
    2. chunks       running requests with more to compute, within what the budget leaves
    3. admissions   waiting requests, unless pass 1 or 2 had to preempt
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.engine.budget import Limits, StepBudget
from octavo.engine.drafting import ask_for_drafts
from octavo.engine.plan import RowAdvance, StepPlan
from octavo.engine.policy_guard import PolicyGuard
from octavo.engine.prefixes import is_prefix_coming
from octavo.engine.queues import OrderedQueue
from octavo.engine.request import Request, RequestState
from octavo.engine.scheduled_step import ScheduledStep
from octavo.interfaces.scheduler import SchedulerView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.speculation import Speculator
    from octavo.interfaces.allocator import Allocator
    from octavo.interfaces.executor import StepCosts
    from octavo.interfaces.scheduler import SchedulerPolicy

_NO_BLOCKS: tuple[tuple[int, ...], ...] = ()
_RUNNING = RequestState.RUNNING  # an enum's members are slow to look up


class SchedulingCore:
    """Waiting and running requests, and the plan of the next step."""

    def __init__(
        self,
        policy: SchedulerPolicy,
        allocator: Allocator,
        limits: Limits,
        costs: StepCosts,
        speculator: Speculator,
    ) -> None:
        self.policy = PolicyGuard(policy)
        self.allocator = allocator
        self.limits = limits
        self.costs = costs
        self.speculator = speculator
        self.waiting = OrderedQueue(self.policy)
        self.running = OrderedQueue(self.policy)
        self.view = SchedulerView(
            max_num_seqs=limits.max_num_seqs,
            waiting=self.waiting.requests,
            running=self.running.requests,
            num_cached_tokens=self._num_cached,
        )
        self.num_preemptions = 0
        self.num_queried_tokens = 0
        self.num_hit_tokens = 0
        self._free_rows = list(range(limits.max_num_seqs - 1, -1, -1))
        self._released = StepPlan(0)  # rows and requests to be named in the next plan
        self._num_steps = 0
        self._is_sharing = allocator.context.enable_prefix_caching

    # ------------------------------------------------------------------ requests come and go

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.add(request, self.view)

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands, and free all that it holds (S5)."""
        if request.state is RequestState.RUNNING:
            self.running.remove(request)
            self._released.ends.append(self._release(request))
        elif request.state is RequestState.WAITING:
            self.waiting.remove(request)
            if request.num_preemptions:
                self._released.drops.append(request.request_id)
        request.state = RequestState.FINISHED
        self.speculator.forget(request)

    def _release(self, request: Request) -> int:
        """Free what a running request holds. Returns its row."""
        self.allocator.free(request.table)
        self._free_rows.append(request.row)
        return request.row

    # ------------------------------------------------------------------ planning

    def plan(self, now_s: float) -> ScheduledStep | None:
        """Return the next step, or None when nobody can advance now."""
        self._look(now_s)
        step = ScheduledStep(StepPlan(self._num_steps))
        budget = StepBudget(self.limits, self.costs)
        self.running.refresh(self.view)
        has_preempted = self._advance_running(step, budget)
        if not has_preempted and len(self.waiting):
            self._admit_waiting(step, budget)
        if not step.plan.advances:
            return None
        plan, released = step.plan, self._released
        plan.ends, plan.pauses, plan.drops = released.ends, released.pauses, released.drops
        self._released = StepPlan(0)
        ask_for_drafts(step, self.speculator, self.allocator, len(self.running))
        self._num_steps += 1
        return step

    def _look(self, now_s: float) -> None:
        view, counts = self.view, self.allocator.counts()
        view.now_s = self.allocator.context.eviction.now_s = now_s
        view.step = self._num_steps
        view.num_running, view.num_waiting = len(self.running), len(self.waiting)
        view.num_free_blocks = counts.free + counts.cached
        view.num_total_blocks = counts.total

    def _advance_running(self, step: ScheduledStep, budget: StepBudget) -> bool:
        """Advance running requests, decodes first. Returns whether any was preempted."""
        num_before = self.num_preemptions
        later: list[Request] = []
        is_drafting, size = self.speculator.is_active, self.limits.block_size
        running = self.running.snapshot()
        for place, request in enumerate(running, 1):
            if request.state is not _RUNNING:
                continue
            wanted = request.num_wanted
            if wanted > 1:
                later.append(request)
            elif wanted == 1 and budget.num_tokens > 0:
                if (is_drafting or request.drafts) and request.is_scored:
                    behind = [one.num_scheduled for one in running[place:]]
                    self._decode(request, behind, step, budget)
                elif request.num_scheduled < len(request.table.groups[0]) * size:
                    self._put(request, 1, step, budget)
                else:
                    self._advance(request, 1, step, budget)
        for request in later:
            if request.state is RequestState.RUNNING:
                num_tokens = self._chunk(request, request.num_wanted, request.num_scheduled, budget)
                if num_tokens > 0:
                    self._advance(request, num_tokens, step, budget)
        return self.num_preemptions > num_before

    def _decode(
        self, request: Request, behind: Sequence[int], step: ScheduledStep, budget: StepBudget
    ) -> None:
        """Give a request one token, and the drafts that are worth it and find room.

        Nobody is preempted for drafts, nor do they take what those behind it need, of which
        `behind` are the contexts. While its last token is still in flight nothing can be guessed
        about the next, so that a request that might be drafted waits for it.
        """
        speculator = self.speculator
        if request.num_placeholders:
            if not speculator.is_active:
                self._advance(request, 1, step, budget)
            return
        most = request.max_tokens - request.num_output_tokens - 1
        room = budget.room_for_drafts(request.num_scheduled, most, behind)
        drafts = speculator.drafts(request, room, len(self.running))
        target = request.num_scheduled + 1 + len(drafts)
        if drafts and self.allocator.allocate(request.table, target):
            self._put(request, 1 + len(drafts), step, budget, drafts)
        else:
            self._advance(request, 1, step, budget)

    def _chunk(self, request: Request, wanted: int, context: int, budget: StepBudget) -> int:
        room = min(wanted, budget.room_for_chunk(context))
        if room <= 1:
            return room
        return max(1, min(room, self.policy.chunk(request, room, self.view)))

    def _advance(
        self, request: Request, num_tokens: int, step: ScheduledStep, budget: StepBudget
    ) -> None:
        """Give `request` its share, preempting others (or itself) when memory runs out."""
        target = request.num_scheduled + num_tokens
        table = request.table
        if target > table.num_blocks * self.limits.block_size:
            while not self.allocator.allocate(table, target):
                victim = self._choose_victim()
                self._preempt(victim, step, budget)
                if victim is request:
                    return
        self._put(request, num_tokens, step, budget)

    def _choose_victim(self) -> Request:
        running = self.running.requests
        index = self.policy.victim(running, self.view)
        return running[min(max(index, 0), len(running) - 1)]

    def _preempt(self, victim: Request, step: ScheduledStep, budget: StepBudget) -> None:
        """Take the victim's blocks, and its place in this step if it had one."""
        if victim in step.requests:
            index = step.requests.index(victim)
            share = step.plan.advances[index]
            budget.give_back(share.num_tokens, share.start, len(share.drafts))
            victim.num_in_flight -= 1
            victim.num_placeholders -= share.is_sampling
            for items in (step.requests, step.epochs, step.plan.advances):
                del items[index]
        self.running.remove(victim)
        self._released.pauses.append(self._release(victim))
        victim.preempt()
        self.waiting.add(victim, self.view)
        self.num_preemptions += 1

    def _put(
        self,
        request: Request,
        num_tokens: int,
        step: ScheduledStep,
        budget: StepBudget,
        drafts: tuple[int, ...] = (),
    ) -> None:
        """Write the share into the plan and move the request's marks."""
        start, table = request.num_scheduled, request.table
        end, num_sent = start + num_tokens, request.num_sent_blocks
        num_known = len(request.token_ids) + request.num_placeholders + len(drafts)
        is_sampling = end == num_known and request.max_tokens > 0
        new_block_ids: Sequence[Sequence[int]] = _NO_BLOCKS
        if num_sent < (num_blocks := len(table.groups[0])):
            new_block_ids = [ids[num_sent:] for ids in table.groups]
            request.num_sent_blocks = num_blocks
        is_prompt_scored = not request.is_scored
        step.plan.advances.append(
            RowAdvance(
                request.row, start, num_tokens, new_block_ids, is_sampling, is_prompt_scored, drafts
            )
        )
        step.requests.append(request)
        step.epochs.append(request.epoch)
        request.num_scheduled = end
        request.num_in_flight += 1
        request.drafts = ()
        if is_sampling:
            request.num_placeholders += 1
        budget.take(num_tokens, start, len(drafts))

    # ------------------------------------------------------------------ admission

    def _admit_waiting(self, step: ScheduledStep, budget: StepBudget) -> None:
        """Start waiting requests in order, until memory, rows or the budget end.

        The first that does not fit into memory ends it: nobody may overtake it for ever (S4).
        """
        if not self._free_rows or budget.room_for_chunk() <= 0:
            return
        self.waiting.refresh(self.view)
        for request in self.waiting.in_turn(self.view):
            if not self._free_rows or budget.room_for_chunk() <= 0:
                return
            if request.held_by or request.num_in_flight:
                continue
            if not self.policy.admit(request, self.view):
                continue
            num_hits = self._match(request)
            if self._is_sharing and is_prefix_coming(
                request, num_hits, self.running.requests, self.limits.block_size
            ):
                continue
            num_known = len(request.token_ids)
            table = request.table
            if not self.allocator.can_admit(table, num_known, num_hit_tokens=num_hits):
                return
            num_tokens = self._chunk(request, num_known - num_hits, num_hits, budget)
            if num_tokens <= 0:
                return
            self.allocator.allocate(table, num_hits + num_tokens, num_hit_tokens=num_hits)
            self._start(request, num_hits, step)
            self._put(request, num_tokens, step, budget)

    def _num_cached(self, request: Any) -> int:
        """Answer a policy's question (`SchedulerView.num_cached_tokens`)."""
        is_waiting = request.state is RequestState.WAITING
        return self._match(request) if is_waiting else int(request.num_computed)

    def _match(self, request: Request) -> int:
        if not request.may_reuse:  # prompt logprobs and means need every position computed
            return 0
        return self.allocator.match(request.table, request.token_ids)

    def _start(self, request: Request, num_hits: int, step: ScheduledStep) -> None:
        """Move a request from waiting to running, and tell the executor all about it."""
        self.waiting.remove(request)
        request.state = RequestState.RUNNING
        request.row = self._free_rows.pop()
        request.num_computed = request.num_scheduled = num_hits
        if request.num_preemptions == 0:
            request.num_cached_tokens = num_hits
            self.num_queried_tokens += request.num_prompt_tokens
            self.num_hit_tokens += num_hits
        self.running.add(request, self.view)
        step.plan.starts.append(request.to_start())
