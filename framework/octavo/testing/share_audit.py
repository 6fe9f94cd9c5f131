"""Compares what each request of a step is offered and gets with what fits at that moment.

What has been given so far is read from the requests, not from the core's own accounts: whoever
loses its share again has another epoch.

Knows requests, and how a step may be filled. Does not know how a core goes about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.testing.step_shares import Share, StepShares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.engine.plan import RowAdvance
    from octavo.engine.request import Request
    from octavo.engine.scheduling import SchedulingCore
    from octavo.interfaces.scheduler import RequestView
    from octavo.testing.searching import Story
    from octavo.testing.told_rows import Marks
    from octavo.testing.watched_policy import WatchedPolicy


def num_hits_of(core: SchedulingCore, request: Request) -> int:
    """Return how many tokens of a request that waits need not be computed."""
    if not request.may_reuse:
        return 0
    return core.allocator.match(request.table, request.token_ids)


class ShareAudit:
    """Looks at all offers of drafts and chunks, and at all shares, of one engine's steps."""

    def __init__(self, core: SchedulingCore, watched: WatchedPolicy, story: Story) -> None:
        self._core = core
        self._watched = watched
        self._story = story
        self._before: Mapping[Request, Marks] = {}
        self._draftable: set[Request] = set()
        self._drafted: dict[Request, tuple[int, ...]] = {}
        self._wanted: dict[Request, int] = {}
        speculator = core.speculator
        self._drafts, self._num_wanted = speculator.drafts, speculator.num_wanted
        speculator.drafts = self.drafts  # type: ignore[method-assign]
        speculator.num_wanted = self.num_wanted  # type: ignore[method-assign]
        watched.on_chunk = self.chunk

    def begin(self, before: Mapping[Request, Marks]) -> None:
        """Take the marks of all requests before a step is planned."""
        self._before = before
        self._drafted, self._wanted = {}, {}
        is_drafting = self._core.speculator.is_active
        self._draftable = {
            one
            for one, marks in before.items()
            if marks.num_wanted == 1
            and one.is_scored
            and not marks.num_placeholders
            and (is_drafting or one.drafts)
        }

    def now(self) -> StepShares:
        """Return the shares that have been given by now, and not been taken back."""
        shares = StepShares(self._core.limits, self._core.costs)
        for request, marks in self._before.items():
            is_start = marks.num_wanted < 0
            start = request.num_computed if is_start else marks.num_scheduled
            num_tokens = request.num_scheduled - start
            if num_tokens > 0 and request.epoch == marks.epoch:
                num_drafts = max(0, request.num_scheduled - marks.num_known)
                shares.taken.append(Share(num_tokens, start, num_drafts))
        return shares

    # ------------------------------------------------------------------ offers

    def drafts(self, request: Request, room: int, num_running: int) -> tuple[int, ...]:
        """Look at the room for drafts, ask for them, and note what is to become of them."""
        name, core = request.request_id, self._core
        self._see_running(num_running)
        later = self._later(request)
        if later is not None:
            most = request.max_tokens - request.num_output_tokens - 1
            wanted = self.now().room_for_drafts(request.num_scheduled, most, later)
            self._see_same(f"{name} may have {room} drafts", room, wanted)
        drafts = self._drafts(request, room, num_running)
        target = request.num_scheduled + 1 + len(drafts)
        fits = drafts and core.allocator.can_allocate(request.table, target)
        self._drafted[request] = drafts if fits else ()
        return drafts

    def num_wanted(self, request: Request, num_running: int) -> int:
        """Note how many drafts are worth asking the executor for."""
        self._see_running(num_running)
        self._wanted[request] = self._num_wanted(request, num_running)
        return self._wanted[request]

    def chunk(self, request: RequestView, offered: int) -> None:
        """A policy is asked how many of the tokens that fit a request shall get."""
        one = next(one for one in self._before if one.request_id == request.request_id)
        wanted, context = self._before[one].num_wanted, one.num_scheduled
        if wanted < 0:
            context = num_hits_of(self._core, one)
            wanted = len(one.token_ids) - context
        room = min(wanted, self.now().room_for_chunk(context))
        told = f"{one.request_id} may have {offered} tokens, of {room}"
        if offered != room:  # the guard of the policy would keep it from us if it were raised here
            self._watched.problems.append(("S1" if offered > room else "S3", told))

    def _see_running(self, num_running: int) -> None:
        most = len(self._core.running)
        self._story.see("S12", num_running == most, f"{num_running} run, and it is {most}")

    def _see_same(self, what: str, given: int, room: int) -> None:
        self._story.see("S1", given <= room, f"{what}, of {room} at most")
        self._story.see("S3", given >= room, f"{what}, of {room}")

    def _later(self, request: Request) -> list[int] | None:
        """Return the contexts of those that have their turn behind one; None if unknown."""
        if self._watched.is_probe:
            keys = {one: marks.order_key for one, marks in self._before.items()}
            running = [one for one, marks in self._before.items() if marks.num_wanted >= 0]
            running.sort(key=keys.__getitem__)
        elif self._watched.victims:
            return None
        else:
            running = [one for one in self._core.running if self._before[one].num_wanted >= 0]
        return [one.num_scheduled for one in running[running.index(request) + 1 :]]

    # ------------------------------------------------------------------ shares

    def look(self, request: Request, share: RowAdvance, before: StepShares) -> None:
        """Nobody gets more than it was offered (S1), or less, unless the policy said so (S3).

        `before`: the shares of the step that stand before this one.
        """
        name, marks = request.request_id, self._before[request]
        is_asked, is_due = request in self._drafted, request in self._draftable
        told = f"{name} is asked for drafts: {is_asked}, and it should be {is_due}"
        self._story.see("S3", is_asked == is_due, told)
        drafts = self._drafted.get(request, ())
        told = f"{name} has the drafts {share.drafts}, of {drafts}"
        self._story.see("S3", share.drafts == drafts, told)
        self._look_at_wish(request, share)
        if marks.num_wanted == 1:
            num_given = share.num_tokens
            self._see_same(f"{name} gets {num_given} tokens", num_given, 1 + len(drafts))
        else:
            self._look_at_chunk(request, share, before)

    def _look_at_chunk(self, request: Request, share: RowAdvance, before: StepShares) -> None:
        name, chunk = request.request_id, self._watched.chunks.get(request.request_id)
        told = f"{name} gets {share.num_tokens} tokens"
        if chunk is not None:
            offered, answer = chunk
            self._see_same(told, share.num_tokens, sorted((1, answer, offered))[1])
            return
        self._story.see("S3", share.num_tokens == 1, f"{told}, and the policy was not asked")
        room = before.room_for_chunk(share.start)
        wanted = self._before[request].num_wanted
        wanted = len(request.token_ids) - share.start if wanted < 0 else wanted
        self._story.see("S1", room > 0, f"{told}, of {room} at most")
        # after somebody's share was taken back there is more room than there was
        is_exact = not self._watched.victims
        self._story.see("S3", not is_exact or min(wanted, room) == 1, f"{told}, of {room}")

    def _look_at_wish(self, request: Request, share: RowAdvance) -> None:
        """The executor is asked for the drafts that are worth it, where a token is sampled."""
        name, most = request.request_id, request.max_tokens - request.num_output_tokens
        wanted = self._wanted.get(request, 0) if share.is_sampling else 0
        room = max(0, min(wanted, most - len(share.drafts) - 2))
        told = f"{name} may get {share.num_drafts_wanted} drafts, of {room}"
        self._story.see("S14", share.num_drafts_wanted == room, told)
        is_due = self._core.speculator.is_executors or request.source.grammar is not None
        told = f"nobody asks what drafts of {name} are worth"
        self._story.see("S3", request in self._wanted or not (is_due and share.is_sampling), told)
