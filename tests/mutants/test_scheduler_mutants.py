"""Policies and cores that are wrong on purpose: each breaks the promise it is listed with."""

from __future__ import annotations

import itertools
import random
from time import monotonic

import pytest

from mutants import assert_killed, name_of
from octavo.engine.budget import StepBudget
from octavo.engine.request import RequestState
from octavo.engine.scheduling import SchedulingCore
from octavo.interfaces.scheduler import SchedulerPolicy


class Starving(SchedulerPolicy):
    """Never admits the least urgent."""

    def admit(self, request, view):
        return request.priority < 5


class FlippedCoin(SchedulerPolicy):
    def order(self, request, view):
        return random.random()  # noqa: S311 - that is its fault


class WallClock(SchedulerPolicy):
    is_order_static = False

    def order(self, request, view):
        return request.arrival_s - monotonic() * request.priority


class Remembering(SchedulerPolicy):
    """Draws from a counter of the class: two runs of one trace differ."""

    counter = itertools.count()

    def order(self, request, view):
        return (next(self.counter) * 7919) % 13


class RefusesAFew(SchedulerPolicy):
    """Never admits every fiftieth."""

    def admit(self, request, view):
        return request.sequence_number % 50 != 49


class WantsTheEngineAlone(SchedulerPolicy):
    """Lets long prompts wait until nobody runs."""

    def admit(self, request, view):
        return view.num_running == 0 or request.num_prompt_tokens < 30


class ByHash(SchedulerPolicy):
    def order(self, request, view):
        return hash(request.request_id)


class WritesIntoParameters(SchedulerPolicy):
    def order(self, request, view):
        if request.params.extra_args is not None:
            request.params.extra_args["seen"] = True
        return request.sequence_number


class KeepsAll(SchedulerPolicy):
    """Remembers every request for ever."""

    def __init__(self, options=None):
        super().__init__(options)
        self.served = []

    def on_tokens(self, request, num_tokens, view):
        self.served.append(request)


class RaisingVictim(SchedulerPolicy):
    def victim(self, running, view):
        return running.index(None)


class VictimOutOfRange(SchedulerPolicy):
    def victim(self, running, view):
        return len(running)


class EmptyChunks(SchedulerPolicy):
    def chunk(self, request, num_tokens, view):
        return num_tokens - 2


class GreedyChunks(SchedulerPolicy):
    def chunk(self, request, num_tokens, view):
        return num_tokens + 1


class MixedKeys(SchedulerPolicy):
    def order(self, request, view):
        return request.sequence_number if request.priority < 4 else "urgent"


class SecretlyAgeing(SchedulerPolicy):
    """Says that its keys are static, and ages them."""

    def order(self, request, view):
        return request.arrival_s + view.now_s * request.priority


class Tagging(SchedulerPolicy):
    def admit(self, request, view):
        request.metadata["seen"] = True
        return True


class TakingRows(SchedulerPolicy):
    def on_tokens(self, request, num_tokens, view):
        view.num_running += 1


class OverBudget(SchedulingCore):
    """Gives each decode a token that the budget no longer has."""

    def _advance_running(self, step, budget):
        budget.num_tokens += 1
        return super()._advance_running(step, budget)


class Forgetful(SchedulingCore):
    """Loses what it preempts."""

    def _preempt(self, victim, step, budget):
        super()._preempt(victim, step, budget)
        if victim.num_preemptions > 1:
            self.waiting.remove(victim)


class Lazy(SchedulingCore):
    """Leaves a request out of every other step."""

    def _put(self, request, num_tokens, *others):
        if num_tokens > 1 or self._num_steps % 2 or request.num_output_tokens % 2:
            super()._put(request, num_tokens, *others)


class WaitsForCompany(SchedulingCore):
    """Starts nobody who is alone."""

    def _admit_waiting(self, step, budget):
        if len(self.running) or len(self.waiting) > 1 or self._num_steps % 2 == 0:
            super()._admit_waiting(step, budget)


class Leaking(SchedulingCore):
    """Frees nothing of what is aborted while it runs."""

    def remove(self, request):
        if request.state is RequestState.RUNNING and request.num_output_tokens == 0:
            request.table = type(request.table).of(len(request.table.groups))
        super().remove(request)


class KeepsKV(SchedulingCore):
    """Takes the KV of a preempted request for granted."""

    def _start(self, request, num_hits, step):
        super()._start(request, num_hits + 1 if request.num_preemptions else num_hits, step)


class GivesNothingBack(SchedulingCore):
    """Takes a share from its request, and leaves it in what the step has spent."""

    def _preempt(self, victim, step, budget):
        super()._preempt(victim, step, StepBudget(self.limits, self.costs))


class DraftsForNobody(SchedulingCore):
    """Gives each request the token that it wants, and never asks for guesses."""

    def _decode(self, request, behind, step, budget):
        self._advance(request, 1, step, budget)


class AbortsWaitingAlone(SchedulingCore):
    """Does not take a waiting request out."""

    def remove(self, request):
        if request.state is RequestState.WAITING:
            request.state = RequestState.FINISHED
            return
        super().remove(request)


MUTANTS = [
    (Starving, "S4"),
    (RefusesAFew, "S4"),
    (WantsTheEngineAlone, "S4"),
    (ByHash, "S7"),
    (WritesIntoParameters, "S11"),
    (KeepsAll, "S15"),
    (FlippedCoin, "S7"),
    (WallClock, "S7"),
    (Remembering, "S7"),
    (RaisingVictim, "S9"),
    (VictimOutOfRange, "S9"),
    (EmptyChunks, "S9"),
    (GreedyChunks, "S9"),
    (MixedKeys, "S9"),
    (SecretlyAgeing, "S10"),
    (Tagging, "S11"),
    (TakingRows, "S11"),
    (OverBudget, "S1"),
    (Forgetful, "S2"),
    (Lazy, "S3"),
    (WaitsForCompany, "S3"),
    (GivesNothingBack, "S3"),
    (DraftsForNobody, "S3"),
    (Leaking, "S5"),
    (KeepsKV, "S6"),
    (AbortsWaitingAlone, "S5"),
]


@pytest.mark.parametrize(("mutant", "number"), MUTANTS, ids=name_of)
def test_a_wrong_scheduler_is_killed(mutant, number):
    assert_killed("scheduler", mutant, number)
