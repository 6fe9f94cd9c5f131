"""The promises of schedulers: S1 to S15, on random traces through the engine.

The mechanism keeps some of them whatever the policy says; they are tried all the same, and so a
whole core, with a `plan()` of its own, can be tested in the place of a policy.

Knows policies and the engine around them. Does not know models or stock policies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from hypothesis import strategies as st

from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.testing.clocks import watched_calls
from octavo.testing.elsewhere import is_same_elsewhere
from octavo.testing.engine_traces import MODES, Run, Trace, play, traces
from octavo.testing.engines import plans_of
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.plan_audit import PlanAudit
from octavo.testing.probe_policy import Habits, ProbePolicy, habits
from octavo.testing.scheduler_soaks import Soak, schedule_of_crowd, soak
from octavo.testing.searching import Story, for_all, keep
from octavo.testing.suite import Suite
from octavo.testing.watched_policy import WatchedPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.engine.scheduling import SchedulingCore
    from octavo.testing.engines import EngineSetup
    from octavo.testing.subjects import Subject

#: a trace, and how a probe decides in it
Case: TypeAlias = tuple[Trace, Habits]


def make_policy(subject: Subject) -> SchedulerPolicy:
    """Return a fresh policy: the subject, or the default's around which a whole core stands."""
    return _policy(subject, Habits())


def _policy(subject: Subject, how: Habits) -> SchedulerPolicy:
    if not issubclass(subject.cls, SchedulerPolicy):
        return ProbePolicy(how)
    policy: SchedulerPolicy = subject.build()
    return policy


promises = Promises("scheduler", SchedulerPolicy, make_policy)


def _setup(subject: Subject, mode: str, policy: SchedulerPolicy) -> EngineSetup:
    setup = replace(MODES[mode], policy=policy)
    if not issubclass(subject.cls, SchedulerPolicy):
        core: type[SchedulingCore] = subject.cls
        setup = replace(setup, core=core)
    return setup


def _cases(subject: Subject) -> st.SearchStrategy[Case]:
    """Return traces; those for a whole core come with a probe's habits."""
    is_policy = issubclass(subject.cls, SchedulerPolicy)
    return st.tuples(traces(), st.just(Habits()) if is_policy else habits())


def _trace(subject: Subject) -> Callable[[Case, Story], None]:
    """Return the run of a trace which sees all numbers; one for each subject."""

    def run(case: Case, story: Story) -> None:
        (mode, events), how = case
        watched = WatchedPolicy(_policy(subject, how), story)
        story.tell(f"an engine in the mode '{mode}'{watched.told}")
        setup = _setup(subject, mode, watched)

        def begin(run: Run) -> None:
            PlanAudit(run.engine, watched, story)

        play(setup, events, story, begin=begin, look=watched.look)

    found: Callable[[Case, Story], None] = subject.memory.setdefault("trace", run)
    return found


def _keep(subject: Subject, number: str) -> None:
    keep(subject, number, _cases(subject), _trace(subject), examples=300)


def _soak(subject: Subject, number: str) -> None:
    if soak not in subject.memory:
        subject.memory[soak] = soak(_setup(subject, "roomy", make_policy(subject)))
    seen: Soak = subject.memory[soak]
    if number in seen.broken:
        raise PromiseBroken(seen.broken[number])


def crowd_of(subject: Subject) -> str:
    """Return the schedule of a crowd as text."""
    return schedule_of_crowd(_setup(subject, "roomy", make_policy(subject)))


@promises.keeps("S1")
def budgets_are_never_exceeded(subject: Subject) -> None:
    """Tokens, sequences, rows of logits and milliseconds of every step."""
    _keep(subject, "S1")


@promises.keeps("S2")
def no_request_is_lost_or_duplicated(subject: Subject) -> None:
    """Each is in one queue until its one end."""
    _keep(subject, "S2")


@promises.keeps("S3")
def nobody_idles_who_could_go_on(subject: Subject) -> None:
    """A step advances all that it has room for."""
    _keep(subject, "S3")


@promises.keeps("S4")
def every_request_ends_or_is_refused_at_once(subject: Subject) -> None:
    """In bounded steps after the last arrival."""
    _keep(subject, "S4")


@promises.keeps("S4")
def nobody_is_passed_over_for_long(subject: Subject) -> None:
    """Of hundreds that come one after another, where there is room for all who are there."""
    _soak(subject, "S4")


@promises.keeps("S5")
def an_abort_frees_everything(subject: Subject) -> None:
    """In any state, and at once."""
    _keep(subject, "S5")


@promises.keeps("S6")
def tokens_do_not_depend_on_the_schedule(subject: Subject) -> None:
    """Each request gets what it gets alone, and the cache holds what it should."""
    _keep(subject, "S6")


@promises.keeps("S7")
def the_same_trace_gives_the_same_schedule(subject: Subject) -> None:
    """Twice the same trace, and neither a clock nor a random number is asked for."""

    def body(case: Case) -> None:
        plans, told = [], ""
        for _ in range(2):
            with watched_calls(subject.cls.__module__) as calls:
                story = Story()
                run = _play_quietly(subject, case, story)
            told = story.text(f"the policy calls {calls[0]}" if calls else "")
            if calls:
                raise PromiseBroken(told)
            plans.append(run)
        if plans[0] != plans[1]:
            first = next(i for i, (a, b) in enumerate(zip(*plans, strict=False)) if a != b)
            raise PromiseBroken(f"two runs differ from step {first} on{told}")

    for_all(subject, _cases(subject), body, examples=40)


@promises.keeps("S7")
def another_process_gives_the_same_schedule(subject: Subject) -> None:
    """Where strings hash otherwise."""
    if not is_same_elsewhere(subject, crowd_of):
        raise PromiseBroken(
            "the same requests are served in another order in another process: "
            "does it go by `hash`, by `id`, or by the order of a set?"
        )


def _play_quietly(subject: Subject, case: Case, story: Story) -> Any:
    """Return the plans of a trace, whatever else is broken in it."""
    (mode, events), how = case
    policy = _policy(subject, how)
    runs: list[Run] = []
    setup = _setup(subject, mode, policy)
    story.play(lambda: (play(setup, events, story, begin=runs.append), None)[1])
    return plans_of(runs[0].engine) if runs else []


@promises.keeps("S8")
def planning_ahead_changes_no_token(subject: Subject) -> None:
    """Depth 0 and depth 1, with and without room."""

    def body(case: Case) -> None:
        (_, events), how = case
        added = [one for one in events if one.action in {"add", "burst"}]
        for num_blocks in (11, 64):
            outcomes = []
            for depth in (0, 1):
                setup = _setup(subject, "roomy", _policy(subject, how))
                setup = replace(setup, depth=depth, is_late=bool(depth), num_blocks=num_blocks)
                requests = play(setup, added, Story("S8")).requests
                outcomes.append({name: one.outcome.token_ids for name, one in requests.items()})
            if outcomes[0] != outcomes[1]:
                raise PromiseBroken(f"depth 0 gives {outcomes[0]}, depth 1 {outcomes[1]}")

    def guarded(case: Case) -> None:
        Story("S8").play(lambda: body(case))

    for_all(subject, _cases(subject), guarded, examples=40)


@promises.keeps("S9")
def a_policy_answers_within_bounds(subject: Subject) -> None:
    """What it returns can be used, and it raises nothing."""
    _keep(subject, "S9")


@promises.keeps("S10")
def static_keys_stay_as_they_are(subject: Subject) -> None:
    """For as long as a request waits."""
    _keep(subject, "S10")


@promises.keeps("S11")
def a_policy_changes_nothing_it_is_shown(subject: Subject) -> None:
    """Neither requests nor the view."""
    _keep(subject, "S11")


@promises.keeps("S11")
def a_policy_changes_nothing_that_callers_gave(subject: Subject) -> None:
    """Neither parameters, nor metadata, nor prompts, nor what these hold."""
    _soak(subject, "S11")


@promises.keeps("S12")
def what_is_counted_is_true(subject: Subject) -> None:
    """Steps, preemptions and hits."""
    _keep(subject, "S12")


@promises.keeps("S13")
def turns_are_taken_in_order(subject: Subject) -> None:
    """Whoever is passed over is held, refused, or waits for a prefix or for memory."""
    _keep(subject, "S13")


@promises.keeps("S14")
def the_executor_is_told_all_of_its_rows(subject: Subject) -> None:
    """Starts, blocks, tokens, pauses and ends."""
    _keep(subject, "S14")


@promises.keeps("S15")
def ended_requests_are_let_go(subject: Subject) -> None:
    """But for the last few."""
    _soak(subject, "S15")


class SchedulerSuite(Suite, promises=promises):
    """The tests of a scheduler's policy, or of a whole core."""
