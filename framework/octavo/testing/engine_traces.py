"""Random traces through a whole engine on the stub executor, in all its modes.

Requests with shared beginnings come, are held, released and aborted, are preempted, chunked,
drafted and planned ahead. Each step is looked at; in the end every request must have its tokens.

Knows the engine and its parts. Does not know which of them is under test: `Parts` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import strategies as st

from octavo.errors import EngineDeadError, RequestError
from octavo.interfaces.executor import CacheGroup, StepCosts
from octavo.testing.engines import (
    EngineSetup,
    StubProposer,
    make_engine,
    plans_of,
    problems_of_blocks,
    problems_of_budgets,
    request,
)
from octavo.testing.invariants import PromiseBroken
from octavo.testing.trace_requests import WISHES, Event, expected_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineOutput
    from octavo.testing.searching import Story
    from octavo.testing.trace_requests import Expected

#: in modes with a limit in time: attending to what came before is dear
COSTS = StepCosts(((0, 1.0), (1, 1.1)), per_context_ms=0.002)
GROUPS = (CacheGroup(), CacheGroup(5), CacheGroup(1))
#: how many steps, a second each, may be without anything to do although requests wait
PATIENCE = 300
#: how many steps a trace may take to end after its last event
MOST_STEPS = 5000
MODES: Mapping[str, EngineSetup] = MappingProxyType(
    {
        "roomy": EngineSetup(),
        "one-token-blocks": EngineSetup(block_size=1, num_blocks=200),
        "preempting": EngineSetup(num_blocks=11, max_num_seqs=6),
        "tiny-chunks": EngineSetup(max_num_batched_tokens=3, max_num_seqs=3),
        "few-tokens": EngineSetup(max_num_batched_tokens=3),
        "by-time": EngineSetup(max_step_ms=2.5, costs=COSTS),
        "by-time-preempting": EngineSetup(max_step_ms=2.0, costs=COSTS, num_blocks=11),
        "by-time-few-tokens": EngineSetup(max_step_ms=1.3, costs=COSTS, num_blocks=11),
        "one-at-a-time": EngineSetup(max_num_seqs=1, num_blocks=20),
        "late": EngineSetup(depth=1, is_late=True),
        "late-preempting": EngineSetup(depth=1, is_late=True, num_blocks=11),
        "no-cache": EngineSetup(enable_prefix_caching=False, num_blocks=20),
        "drafts": EngineSetup(proposer=StubProposer()),
        "drafts-preempting": EngineSetup(proposer=StubProposer(), num_blocks=11, max_num_seqs=6),
        "drafts-late": EngineSetup(proposer=StubProposer(), depth=1, is_late=True, num_blocks=14),
        "drafts-by-time": EngineSetup(proposer=StubProposer(), max_step_ms=2.0, costs=COSTS),
        "drafts-few-rows": EngineSetup(proposer=StubProposer(), max_logit_rows=11),
        "no-rows-for-drafts": EngineSetup(proposer=StubProposer(), max_logit_rows=8),
        "drafts-by-time-preempting": EngineSetup(
            proposer=StubProposer(), max_step_ms=2.0, max_logit_rows=11, costs=COSTS, num_blocks=11
        ),
        "drafts-tiny-chunks": EngineSetup(proposer=StubProposer(), max_num_batched_tokens=3),
        "executor-drafts": EngineSetup(max_executor_drafts=3, num_blocks=20),
        "executor-drafts-late": EngineSetup(max_executor_drafts=3, depth=1, is_late=True),
        "groups-preempting": EngineSetup(groups=GROUPS, num_blocks=44),
        "groups-late": EngineSetup(groups=GROUPS, num_blocks=44, depth=1, is_late=True),
        "window-only": EngineSetup(groups=(CacheGroup(5),), num_blocks=16),
        "groups-drafts": EngineSetup(groups=GROUPS[:2], num_blocks=44, proposer=StubProposer()),
    }
)


#: an engine's mode by name, and what happens
Trace: TypeAlias = tuple[str, list[Event]]
_ACTIONS = (
    "add", "burst", "burst", "abort", "drop", "hold", "release", "step", "step", "steps", "huge",
)  # fmt: skip
_BURST, _STEPS = 4, 5


def traces(modes: Mapping[str, EngineSetup] = MODES) -> st.SearchStrategy[Trace]:
    """Return random traces in these modes."""
    event = st.builds(
        Event,
        st.sampled_from(_ACTIONS),
        st.integers(0, 3),
        st.integers(0, 24),
        st.integers(1, 12),
        st.integers(0, 5),
        st.sampled_from(WISHES),
    )
    # long ones fill memory, short ones are what a counter-example shrinks to
    events = st.one_of(
        st.lists(event, min_size=1, max_size=12), st.lists(event, min_size=12, max_size=30)
    )
    return st.tuples(st.sampled_from(sorted(modes)), events)


@dataclass
class Run:
    """An engine in the middle of a trace, and what should come of its requests."""

    engine: Engine
    story: Story
    requests: dict[str, Expected] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    #: called after everything that happens
    look: Callable[[], None] = lambda: None

    @property
    def live(self) -> list[str]:
        """Return the ids of those that have not ended, the oldest first."""
        every = self.requests.items()
        return [name for name, one in every if one.outcome.finish_reason is None]

    def happen(self, event: Event) -> None:
        """Let one event happen."""
        if event.action in {"add", "burst"}:
            for number in range(_BURST if event.action == "burst" else 1):
                self.add(event._replace(stem=(event.stem + number) % 4))
        elif event.action == "huge":
            self.add_infeasible()
        elif event.action in {"step", "steps"}:
            for _ in range(_STEPS if event.action == "steps" else 1):
                self.step()
        elif event.action == "drop":
            paused = [one for one in self.engine.core.waiting if one.num_preemptions]
            for one in paused[event.which % 2 :][:1]:
                self._happen_to(one.request_id, "abort")
        elif (request_id := f"r{event.which}") in self.requests:
            self._happen_to(request_id, event.action)
        self.look()

    def _happen_to(self, request_id: str, action: str) -> None:
        self.story.tell(f"{action} {request_id}")
        if action == "abort":
            self.take(self.engine.abort([request_id]))
            self._look_after_abort(request_id)
        elif action == "hold" and request_id in self.live:
            self.engine.hold(request_id, "test")
            self.held.add(request_id)
        elif action == "release":
            self.engine.release(request_id, "test")
            self.held.discard(request_id)

    def add(self, event: Event) -> None:
        """Add a request, whose prompt begins as those of the same stem do."""
        one = expected_of(event, len(self.requests))
        source = one.source
        self.story.tell(
            f"add {source.request_id}: {len(source.prompt_token_ids)} tokens (stem {event.stem}), "
            f"max_tokens {source.max_tokens}, priority {source.priority} {event.wish}".rstrip()
        )
        self.requests[source.request_id] = one
        if one.finish_reason == "error":
            bad_ids: set[str] = getattr(self.engine.executor, "bad_request_ids", set())
            bad_ids.add(source.request_id)
        self.engine.add(source)

    def add_infeasible(self) -> None:
        """A request that never fits is refused at once (S4)."""
        self.story.tell("add a request that is longer than the cache")
        too_long = self.engine.core.allocator.capacity_tokens + 1
        try:
            self.engine.add(request("huge", [1] * too_long, 1))
        except RequestError:
            return
        self.story.fail("S4", f"a request of {too_long} tokens is accepted, not refused")

    def step(self) -> None:
        """Let the engine make a step, and look at it."""
        if not self.engine.has_work:
            return
        self.story.tell_again("step")
        try:
            outputs = self.engine.step()
        except EngineDeadError as error:
            if isinstance(error.__cause__, PromiseBroken):
                self.story.fail("S6", str(error.__cause__))
            raise
        self.look()
        self.take(outputs)
        for problem in problems_of_budgets(self.engine):
            self.story.fail("S1", problem)
        for problem in problems_of_blocks(self.engine):
            self.story.fail("S5", problem)
        self._look_at_requests()

    def take(self, outputs: list[EngineOutput]) -> None:
        """Give outputs to their requests."""
        for output in outputs:
            known = self.requests.get(output.request_id)
            is_open = known is not None and known.outcome.finish_reason is None
            self.story.see("S2", is_open, f"{output.request_id}: an output after its end")
            if known is not None:
                known.outcome.take(output)

    def _look_at_requests(self) -> None:
        """Every request that has not ended is in one queue, once, and the queues are in order."""
        core = self.engine.core
        queued = [one.request_id for one in (*core.running, *core.waiting)]
        live = self.live
        self.story.see(
            "S2",
            sorted(queued) == sorted(live),
            lambda: f"unfinished are {sorted(live)}, and in the queues {sorted(queued)}",
        )

    def _look_after_abort(self, request_id: str) -> None:
        core = self.engine.core
        queued = {one.request_id for one in (*core.running, *core.waiting)}
        self.story.see("S5", request_id not in queued, f"{request_id} was aborted and is queued")
        for problem in problems_of_blocks(self.engine):
            self.story.fail("S5", f"after the abort of {request_id}: {problem}")

    def end(self) -> None:
        """Release all, run to the end, and compare what came with what should have."""
        for request_id in sorted(self.held):
            self.engine.release(request_id, "test")
        num_plans = num_idle = num_steps = 0
        while self.engine.has_work and num_idle < PATIENCE and num_steps < MOST_STEPS:
            self.step()
            num_steps += 1
            num_idle = 0 if len(plans_of(self.engine)) > num_plans else num_idle + 1
            num_plans = len(plans_of(self.engine))
        late = self.live
        self.story.see("S4", not late, f"{', '.join(late)} did not end within {num_steps} steps")
        for one in self.requests.values():
            for problem in one.problems():
                self.story.fail("S6", problem)
        counts = self.engine.core.allocator.counts()
        self.story.see("S5", counts.used == 0, f"all have ended, and {counts.used} blocks are used")


def play(
    setup: EngineSetup,
    events: list[Event],
    story: Story,
    *,
    begin: Callable[[Run], None] = lambda _: None,
    look: Callable[[], None] = lambda: None,
) -> Run:
    """Play a trace from its beginning to the end of all its requests.

    `begin` is called with the engine that is still empty, `look` after everything that happens.
    """
    run = Run(make_engine(setup), story, look=look)
    begin(run)
    for event in events:
        run.happen(event)
    run.end()
    return run
