"""How many drafts are made: what pays, learned, and bounded in what it may cost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from octavo.engine.acceptance import Acceptance
from octavo.engine.speculation import MAX_FORCED, Speculator
from octavo.interfaces.executor import ExecutorFacts, StepCosts
from octavo.interfaces.proposer import EngineProposer

#: measured with SmolLM2 on the torch ops: a second token is dear, each further one cheap
COSTS = StepCosts(((1, 35.0), (2, 47.0), (6, 64.0), (16, 73.0), (128, 151.0)))


class Five(EngineProposer):
    max_drafts = 5

    def propose(self, request, max_tokens):
        return [1] * min(5, max_tokens)


def speculator(proposer=None, costs=COSTS, max_drafts=0, draft_ms=0.0):
    facts = ExecutorFacts(9, 999, 1000, costs, max_drafts=max_drafts, draft_ms=draft_ms)
    return Speculator(facts, proposer)


class Run:
    """One request, whose drafts are right as `is_right(number of the token)` says."""

    def __init__(self, decider, is_right, num_running=1, request_id="r"):
        self.decider = decider
        self.is_right = is_right
        self.num_running = num_running
        self.request = SimpleNamespace(
            request_id=request_id, drafts=(), num_output_tokens=1,
            source=SimpleNamespace(grammar=None),
        )  # fmt: skip
        self.spent_ms = self.plain_ms = 0.0
        self.num_drafts = []

    def go_on(self, num_tokens):
        """Return the time without drafts divided by the time with them."""
        decider, request = self.decider, self.request
        end = request.num_output_tokens + num_tokens
        draft_ms = decider._facts.draft_ms
        while request.num_output_tokens < end:
            if decider.is_executors:
                num = decider.num_wanted(request, self.num_running)
            else:
                num = len(decider.drafts(request, 5, self.num_running))
            right = 0
            while right < num and self.is_right(request.num_output_tokens + right):
                right += 1
            base_ms = COSTS.predict_ms(self.num_running)
            more_ms = COSTS.predict_ms(self.num_running + num) - base_ms + num * draft_ms
            self.spent_ms += base_ms / self.num_running + more_ms
            self.plain_ms += (right + 1) * base_ms / self.num_running
            request.num_output_tokens += right + 1
            self.num_drafts.append(num)
            if num:
                decider.observe(request, num, right)
        return self.plain_ms / self.spent_ms


def test_drafts_that_are_right_are_made_in_full():
    run = Run(speculator(Five()), lambda _: True)

    assert run.go_on(60) > 2.5
    assert run.num_drafts[-1] == 5


@pytest.mark.parametrize("num_running", [1, 4, 16])
def test_drafts_that_are_never_right_cost_a_first_attempt_and_a_hundredth(num_running):
    run = Run(speculator(Five()), lambda _: False, num_running)
    run.go_on(64)
    # a short answer, too, loses less than two hundredths
    assert run.plain_ms / run.spent_ms > (0.98 if num_running == 1 else 0.97)
    ratio = run.go_on(336)

    first_ms = COSTS.predict_ms(num_running + 2) - COSTS.predict_ms(num_running)
    assert run.spent_ms <= 1.01 * run.plain_ms + first_ms + 1e-6
    assert ratio > 0.98
    assert sum(run.num_drafts) > 0


def test_a_first_failure_costs_the_next_request_nothing_but_its_share():
    decider = speculator(Five())
    for number in range(20):
        run = Run(decider, lambda _: False, request_id=f"r{number}")
        run.go_on(100)
        decider.forget(run.request)

    assert run.spent_ms <= 1.01 * run.plain_ms
    assert decider._accounts == {}


def test_a_text_that_begins_to_repeat_itself_is_noticed():
    run = Run(speculator(Five()), lambda place: place > 200)
    run.go_on(200)
    assert sum(run.num_drafts[-50:]) <= 10
    before = run.request.num_output_tokens
    num_steps = len(run.num_drafts)
    run.go_on(200)

    assert (run.request.num_output_tokens - before) / (len(run.num_drafts) - num_steps) > 2
    assert run.num_drafts[-1] == 5


def test_short_guesses_pay_where_only_the_first_is_right():
    cheap = StepCosts.linear(10.0, 1.0)
    decider = speculator(Five(), cheap)
    run = Run(decider, lambda place: place % 2)
    run.go_on(200)

    assert set(run.num_drafts[-20:]) <= {1, 2}


def test_what_the_executors_proposer_takes_is_counted():
    cheap, dear = (speculator(max_drafts=5, draft_ms=draft_ms) for draft_ms in (1.0, 40.0))
    runs = [Run(decider, lambda place: place % 3) for decider in (cheap, dear)]
    ratios = [run.go_on(300) for run in runs]

    assert ratios[0] > 1.2
    assert sum(runs[1].num_drafts[20:]) <= 4
    assert ratios[1] > 0.95  # a first attempt may take as long as 6 tokens


def test_full_batches_are_drafted_less():
    alone, crowded = (
        Run(speculator(Five()), lambda place: place % 3, num_running) for num_running in (1, 128)
    )
    for run in (alone, crowded):
        run.go_on(120)

    assert sum(alone.num_drafts[-20:]) > sum(crowded.num_drafts[-20:])


def test_forced_tokens_are_asked_for_and_do_not_count_as_guesses():
    decider = speculator(Five())
    request = Run(decider, None).request
    request.source.grammar = object()
    assert decider.num_wanted(request, 1) == MAX_FORCED
    request.drafts = (3, 4, 5, 6, 7, 8, 9)
    assert decider.drafts(request, 6, 1) == (3, 4, 5, 6, 7, 8)
    decider.observe(request, 7, 7)

    assert (decider.num_drafts, decider.num_accepted) == (7, 7)
    assert decider._account(request).gained_ms == 0


def test_chances_are_kept_by_place_and_for_all():
    everyone = Acceptance(3)
    assert everyone.rates() == [0.5, 0.5, 0.5]
    first, second = Acceptance(3, everyone), Acceptance(3, everyone)
    for _ in range(40):
        first.observe(3, 1)  # the first is right, the second is not, the third is not reached

    one, two, three = first.rates()
    assert one > 0.9
    assert two < 0.15
    assert three < 0.3  # as little as the second, until it is tried
    believed = second.rates()
    assert believed == everyone.rates()
    assert 0.7 < believed[0] < 1
    assert 0 < believed[1] < 0.3
