"""The promises of schedulers: S1 to S12, on random traces through the engine.

The mechanism keeps some of them whatever the policy says; they are tried all the same, and so a
whole core, with a `plan()` of its own, can be tested in the place of a policy.

Knows policies and the engine around them. Does not know models or stock policies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.testing.clocks import watched_calls
from octavo.testing.engine_traces import MODES, Run, is_plain, play, traces
from octavo.testing.engines import plans_of
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.searching import Story, for_all, keep
from octavo.testing.suite import Suite
from octavo.testing.watched_policy import WatchedPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.engine.scheduling import SchedulingCore
    from octavo.testing.engine_traces import Event, Trace
    from octavo.testing.engines import EngineSetup
    from octavo.testing.subjects import Subject


def make_policy(subject: Subject) -> SchedulerPolicy:
    """Return a fresh policy: the subject, or the default's around which a whole core stands."""
    if not issubclass(subject.cls, SchedulerPolicy):
        return SchedulerPolicy()
    policy: SchedulerPolicy = subject.build()
    return policy


promises = Promises("scheduler", SchedulerPolicy, make_policy)


def _setup(subject: Subject, mode: str, policy: SchedulerPolicy) -> EngineSetup:
    setup = replace(MODES[mode], policy=policy)
    if not issubclass(subject.cls, SchedulerPolicy):
        core: type[SchedulingCore] = subject.cls
        setup = replace(setup, core=core)
    return setup


def _trace(subject: Subject) -> Callable[[Trace, Story], None]:
    """Return the run of a trace which sees all numbers; one for each subject."""

    def run(trace: Trace, story: Story) -> None:
        mode, events = trace
        story.tell(f"an engine in the mode '{mode}'")
        watched = WatchedPolicy(make_policy(subject), story)
        setup = _setup(subject, mode, watched)
        play(setup, events, story, watch=_is_busy(watched, mode), look=watched.look)

    found: Callable[[Trace, Story], None] = subject.memory.setdefault("trace", run)
    return found


def _is_busy(watched: WatchedPolicy, mode: str) -> Callable[[Run], Callable[[bool], None]] | None:
    """Return what sees whether a step leaves anyone idle who could go on (S3)."""
    setup = MODES[mode]
    if setup.depth or setup.proposer or setup.max_executor_drafts or setup.max_step_ms is not None:
        return None  # what could still be done is not to be told from outside

    def before(run: Run) -> Callable[[bool], None]:
        core = run.engine.core
        ready = [one for one in core.running if is_plain(one)]
        epochs = {one.request_id: one.epoch for one in ready}
        was_idle = not len(core.running)
        waiting = [one for one in core.waiting if not one.held_by]
        watched.admitted.clear()

        def after(is_planned: bool) -> None:
            willing = [one.request_id for one in waiting if watched.admits(one.request_id)]
            if not is_planned:
                run.story.see("S3", not was_idle or not willing, "a step is empty, and some wait")
                stuck = [one.request_id for one in ready if is_plain(one)]
                run.story.see("S3", not stuck, f"a step is empty, and {stuck} could go on")
                return
            plan = plans_of(run.engine)[-1]
            left = core.limits.max_num_batched_tokens - plan.num_tokens
            advanced = {one.row for one in plan.advances}
            for one in ready:
                if left > 0 and one.epoch == epochs[one.request_id] and is_plain(one):
                    run.story.see(
                        "S3",
                        one.row in advanced,
                        f"{one.request_id} could advance, {left} tokens were left, it did not",
                    )
            started = {one.request_id for one in plan.starts}
            if was_idle and willing:
                run.story.see("S3", started, f"nobody ran, {willing[0]} waited and was not started")

        return after

    return before


def _keep(subject: Subject, number: str) -> None:
    keep(subject, number, traces(), _trace(subject), examples=300)


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

    def body(trace: Trace) -> None:
        mode, events = trace
        plans, told = [], ""
        for _ in range(2):
            with watched_calls(subject.cls.__module__) as calls:
                story = Story()
                run = _play_quietly(subject, mode, events, story)
            told = story.text(f"the policy calls {calls[0]}" if calls else "")
            if calls:
                raise PromiseBroken(told)
            plans.append(run)
        if plans[0] != plans[1]:
            first = next(i for i, (a, b) in enumerate(zip(*plans, strict=False)) if a != b)
            raise PromiseBroken(f"two runs differ from step {first} on{told}")

    for_all(subject, traces(), body, examples=40)


def _play_quietly(subject: Subject, mode: str, events: list[Event], story: Story) -> Any:
    """Return the plans of a trace, whatever else is broken in it."""
    policy = make_policy(subject)
    runs: list[Run] = []

    def begin(run: Run) -> Callable[[bool], None]:
        runs[:] = [run]
        return lambda _: None

    story.play(lambda: (play(_setup(subject, mode, policy), events, story, watch=begin), None)[1])
    return plans_of(runs[0].engine) if runs else []


@promises.keeps("S8")
def planning_ahead_changes_no_token(subject: Subject) -> None:
    """Depth 0 and depth 1, with and without room."""

    def body(trace: Trace) -> None:
        _, events = trace
        added = [one for one in events if one.action in {"add", "burst"}]
        for num_blocks in (14, 64):
            outcomes = []
            for depth in (0, 1):
                setup = _setup(subject, "roomy", make_policy(subject))
                setup = replace(setup, depth=depth, is_late=bool(depth), num_blocks=num_blocks)
                story = Story("S8")
                run = play(setup, added, story) if added else None
                outcomes.append({k: v.token_ids for k, v in run.outcomes.items()} if run else {})
            if outcomes[0] != outcomes[1]:
                raise PromiseBroken(f"depth 0 gives {outcomes[0]}, depth 1 {outcomes[1]}")

    def guarded(trace: Trace) -> None:
        Story("S8").play(lambda: body(trace))

    for_all(subject, traces(), guarded, examples=40)


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


@promises.keeps("S12")
def what_is_counted_is_true(subject: Subject) -> None:
    """Steps, preemptions and hits."""
    _keep(subject, "S12")


class SchedulerSuite(Suite, promises=promises):
    """The tests of a scheduler's policy, or of a whole core."""
