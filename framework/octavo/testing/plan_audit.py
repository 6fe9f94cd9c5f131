"""Stands around a core's `plan`, and compares each step with what the rules allow (S1 to S14).

Knows requests, and how a step may be filled. Does not know how a core goes about it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.engine.request import RequestState
from octavo.testing.share_audit import ShareAudit, num_hits_of
from octavo.testing.step_shares import StepShares
from octavo.testing.told_rows import Marks, ToldRows, marks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine.engine import Engine
    from octavo.engine.request import Request
    from octavo.engine.scheduled_step import ScheduledStep
    from octavo.interfaces.scheduler import RequestView, SchedulerView
    from octavo.testing.searching import Story
    from octavo.testing.watched_policy import WatchedPolicy


class PlanAudit:
    """Looks at each step of one engine. `watched` is its policy."""

    def __init__(self, engine: Engine, watched: WatchedPolicy, story: Story) -> None:
        self._core = engine.core
        self._watched = watched
        self._story = story
        self._rows = ToldRows(engine.core)
        self._shares = ShareAudit(engine.core, watched, story)
        self._plan = engine.core.plan
        self._turns: dict[str, int] = {}  # who had one, and how many of its tokens are cached
        self._before: dict[Request, Marks] = {}
        self._seen = [0, 0, 0]  # preemptions, tokens hit, tokens asked for
        engine.core.plan = self.plan  # type: ignore[method-assign]
        watched.on_turn, watched.on_victim = self.turn, self.victim

    def plan(self, now_s: float) -> ScheduledStep | None:
        """Let the core plan a step, and look at it."""
        core = self._core
        self._turns.clear()
        self._watched.admitted.clear()
        self._watched.chunks.clear()
        self._watched.victims.clear()
        counts = core.allocator.counts()
        facts = (
            now_s, self._rows.num_steps, len(core.running), len(core.waiting),
            counts.free + counts.cached, counts.total,
        )  # fmt: skip
        view = replace(core.view, now_s=now_s)
        self._before = {one: marks_of(one, self._key(one, view)) for one in core.running}
        for one in core.waiting:
            self._before[one] = marks_of(one)._replace(num_wanted=-1)
        self._shares.begin(self._before)
        scheduled = self._plan(now_s)
        view = core.view
        shown = (
            view.now_s, view.step, view.num_running, view.num_waiting, view.num_free_blocks,
            view.num_total_blocks,
        )  # fmt: skip
        self._story.see("S12", shown == facts, f"policies are shown {shown}, and it is {facts}")
        self._look(scheduled)
        return scheduled

    def _key(self, request: RequestView, view: SchedulerView) -> Any:
        """Return the key of one request now; only of probes is known that asking changes nothing.

        Others' keys are looked at by `WatchedPolicy`.
        """
        if not self._watched.is_probe:
            return None
        return self._watched.policy.order(request, view), request.sequence_number

    def _look(self, scheduled: ScheduledStep | None) -> None:
        story = self._story
        lost = [one.request_id for one, marks in self._before.items() if one.epoch != marks.epoch]
        num_preempted = len(lost)
        self._seen[0] += num_preempted
        chosen = sorted(self._watched.victims)
        told = f"the policy chose {chosen} to be preempted, and {sorted(lost)} were"
        story.see("S2", sorted(lost) == chosen, told)
        shares = StepShares(self._core.limits, self._core.costs)
        if scheduled is not None:
            for problem in self._rows.problems(scheduled, self._before):
                story.fail("S14", problem)
            self._look_at_hits(scheduled)
            for request, advance in zip(scheduled.requests, scheduled.plan.advances, strict=True):
                self._shares.look(request, advance, shares)
                shares.add(advance)
            self._look_at_order(scheduled)
        core = self._core
        counted = [core.num_preemptions, core.num_hit_tokens, core.num_queried_tokens]
        told = f"(preemptions, tokens hit, asked for) are {self._seen}, and counted are {counted}"
        story.see("S12", counted == self._seen, told)
        self._look_at_idle(shares, set(scheduled.requests) if scheduled else set(), num_preempted)
        if not num_preempted:
            self._look_at_waiting(shares)

    def _look_at_hits(self, scheduled: ScheduledStep) -> None:
        for start in scheduled.plan.starts:
            request = next(one for one in self._core.running if one.row == start.row)
            num_cached = self._turns.get(start.request_id, 0)
            told = f"{start.request_id} starts at {request.num_computed}, of {num_cached} cached"
            self._story.see("S6", request.num_computed == num_cached, told)
            if request.num_preemptions == 0:
                self._seen[1] += request.num_computed
                self._seen[2] += len(request.source.prompt_token_ids)
                is_same = request.num_cached_tokens == request.num_computed
                said = f"{request.num_cached_tokens} tokens of {start.request_id} were hit"
                self._story.see("S12", is_same, f"{said}, and it starts at {request.num_computed}")

    # ------------------------------------------------------------------ who is left out

    def _look_at_idle(self, shares: StepShares, advanced: set[Request], num_preempted: int) -> None:
        """Whoever runs and could go on has a share while there is room (S3)."""
        limits, is_drafting = self._core.limits, self._core.speculator.is_active
        for request, marks in self._before.items():
            if request in advanced or request.epoch != marks.epoch or marks.num_wanted <= 0:
                continue
            if marks.num_placeholders and is_drafting:
                continue  # what comes next is guessed behind a token that is known
            room = shares.num_left
            if marks.num_wanted > 1:
                if num_preempted and limits.max_step_ms is not None:
                    continue  # there was less room before somebody's share was taken back
                room = shares.room_for_chunk(request.num_scheduled)
            told = f"{request.request_id} could go on, {room} tokens fit, and it has no share"
            self._story.see("S3", room <= 0, told)

    def _look_at_waiting(self, shares: StepShares) -> None:
        """The first that waits has started, unless something stands in its way (S3)."""
        core = self._core
        if len(core.running) >= core.limits.max_num_seqs or shares.room_for_chunk() <= 0:
            return
        waiting = {one.request_id: one for one in core.waiting}
        asked = [waiting.pop(name) for name in self._turns if name in waiting]
        for request in (*asked, *waiting.values()):
            if request.held_by or request.num_in_flight:
                continue
            if not self._watched.admits(request.request_id):
                continue
            num_hits = num_hits_of(self._core, request)
            if self._is_coming(request, num_hits):
                continue
            num_known = len(request.token_ids)
            if not core.allocator.can_admit(request.table, num_known, num_hit_tokens=num_hits):
                return
            room = shares.room_for_chunk(num_hits)
            told = f"{request.request_id} waits, {room} tokens fit, and it was not started"
            self._story.see("S3", room <= 0, told)
            return

    def _is_coming(self, request: Request, num_hits: int) -> bool:
        """Return whether somebody who runs is about to compute the next block that it needs."""
        end = num_hits + self._core.limits.block_size
        if not self._core.allocator.context.enable_prefix_caching or not request.may_reuse:
            return False
        return end < len(request.token_ids) and any(
            one.table.extra == request.table.extra
            and one.num_computed < end <= one.num_prompt_tokens
            and one.token_ids[:end] == request.token_ids[:end]
            for one in self._core.running
        )

    # ------------------------------------------------------------------ turns

    def turn(self, request: RequestView, view: SchedulerView) -> None:
        """A policy is asked whether a request may start: those before it have had their turn."""
        name = request.request_id
        one = next(one for one in self._core.waiting if one.request_id == name)
        num_cached = view.num_cached_tokens(request)
        is_free = not one.held_by and not one.num_in_flight
        self._note("S2", is_free, f"{name} has its turn, and is held or in flight")
        wanted = self._turns[name] = num_hits_of(self._core, one)
        told = f"{num_cached} tokens of {name} are said to be cached, of {wanted}"
        self._note("S12", num_cached == wanted, told)
        mine = self._key(request, view)
        for other in self._core.waiting:
            if other.held_by or other.num_in_flight or other.request_id in self._turns:
                continue
            is_first = mine is None or mine <= self._key(other, view)
            self._note("S13", is_first, f"{name} has its turn before {other.request_id}")

    def victim(self, running: Sequence[RequestView], view: SchedulerView) -> None:
        """A policy is asked whom to preempt: it is shown all that run, in order."""
        names = {one.request_id for one in self._core.running}
        shown = [one.request_id for one in running]
        self._note("S12", names == set(shown), f"{names} run, and {shown} are shown")
        if self._watched.is_probe:
            known = {one.request_id: marks.order_key for one, marks in self._before.items()}
            keys = [known[name] for name in shown]
            self._note("S13", keys == sorted(keys), f"{shown} run, out of order")
        for one in running:
            num_cached = view.num_cached_tokens(one)
            told = f"{num_cached} tokens of {one.request_id} are said to be computed"
            self._note("S12", num_cached == one.num_computed_tokens, told)

    def _note(self, number: str, is_kept: object, problem: str) -> None:
        """Keep a problem until the policy's call is over: whatever it raises is kept from us."""
        if not is_kept:
            self._watched.problems.append((number, problem))

    def _look_at_order(self, scheduled: ScheduledStep) -> None:
        """Those that want one token come first, then chunks, then starts, each in order."""
        if not self._watched.is_probe:
            return
        every = [self._before[one] for one in scheduled.requests]
        places = [(one.num_wanted > 1, one.order_key) for one in every if one.num_wanted > 0]
        names = [one.request_id for one in scheduled.requests]
        self._story.see("S13", places == sorted(places), f"{names} advance out of order: {places}")
        is_so = all(one.state is RequestState.RUNNING for one in scheduled.requests)
        self._story.see("S2", is_so, f"{names} advance, and not all of them run")
