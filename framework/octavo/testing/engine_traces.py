"""Random traces through a whole engine on the stub executor, in all its modes.

Requests with shared beginnings come, are held, released and aborted, are preempted, chunked,
drafted and planned ahead. Each step is looked at; in the end every request must have its tokens.

Knows the engine and its parts. Does not know which of them is under test: `Parts` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from octavo.engine.request import RequestState
from octavo.errors import EngineDeadError, RequestError
from octavo.interfaces.executor import CacheGroup
from octavo.testing.engines import (
    EngineSetup,
    Outcome,
    StubProposer,
    make_engine,
    plans_of,
    problems_of_blocks,
    problems_of_budgets,
    request,
)
from octavo.testing.invariants import PromiseBroken
from octavo.testing.stub_executor import expected_output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.engine.engine import Engine
    from octavo.engine.messages import EngineOutput
    from octavo.engine.request import Request
    from octavo.testing.searching import Story

GROUPS = (CacheGroup(), CacheGroup(5), CacheGroup(1))
#: how many steps, a second each, may be without anything to do although requests wait
PATIENCE = 300
#: how many steps a trace may take to end after its last event
MOST_STEPS = 5000
MODES: Mapping[str, EngineSetup] = MappingProxyType(
    {
        "roomy": EngineSetup(),
        "one-token-blocks": EngineSetup(block_size=1, num_blocks=200),
        "preempting": EngineSetup(num_blocks=14, max_num_seqs=6),
        "tiny-chunks": EngineSetup(max_num_batched_tokens=3, max_num_seqs=3),
        "by-time": EngineSetup(max_step_ms=2.5),
        "one-at-a-time": EngineSetup(max_num_seqs=1, num_blocks=20),
        "late": EngineSetup(depth=1, is_late=True),
        "late-preempting": EngineSetup(depth=1, is_late=True, num_blocks=14),
        "no-cache": EngineSetup(enable_prefix_caching=False, num_blocks=20),
        "drafts": EngineSetup(proposer=StubProposer()),
        "drafts-preempting": EngineSetup(proposer=StubProposer(), num_blocks=14, max_num_seqs=6),
        "drafts-late": EngineSetup(proposer=StubProposer(), depth=1, is_late=True, num_blocks=14),
        "drafts-tiny-chunks": EngineSetup(proposer=StubProposer(), max_num_batched_tokens=3),
        "executor-drafts": EngineSetup(max_executor_drafts=3, num_blocks=20),
        "executor-drafts-late": EngineSetup(max_executor_drafts=3, depth=1, is_late=True),
        "groups-preempting": EngineSetup(groups=GROUPS, num_blocks=44),
        "groups-late": EngineSetup(groups=GROUPS, num_blocks=44, depth=1, is_late=True),
        "window-only": EngineSetup(groups=(CacheGroup(5),), num_blocks=16),
        "groups-drafts": EngineSetup(groups=GROUPS[:2], num_blocks=44, proposer=StubProposer()),
    }
)


class Event(NamedTuple):
    """One thing that happens. `which` is the request meant, or the tail, seed and priority."""

    action: str
    stem: int
    num_tokens: int
    max_tokens: int
    which: int


#: an engine's mode by name, and what happens
Trace: TypeAlias = tuple[str, list[Event]]
_ACTIONS = ("add", "add", "burst", "abort", "hold", "release", "step", "step", "steps", "huge")
_BURST, _STEPS = 4, 5


def traces(modes: Mapping[str, EngineSetup] = MODES) -> st.SearchStrategy[Trace]:
    """Return random traces in these modes."""
    event = st.builds(
        Event,
        st.sampled_from(_ACTIONS),
        st.integers(0, 3),
        st.integers(0, 24),
        st.integers(1, 10),
        st.integers(0, 5),
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
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    expected: dict[str, list[int]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    _names: dict[int, str] = field(default_factory=dict)
    _paused: set[str] = field(default_factory=set)
    _hits: dict[str, int] = field(default_factory=dict)
    #: called before each step; what it returns is called after it, with whether there was a plan
    watch: Callable[[Run], Callable[[bool], None]] | None = None
    #: called after everything that happens
    look: Callable[[], None] = lambda: None

    def happen(self, event: Event) -> None:
        """Let one event happen."""
        request_id = f"r{event.which}"
        if event.action in {"add", "burst"}:
            for number in range(_BURST if event.action == "burst" else 1):
                self.add(event._replace(stem=(event.stem + number) % 4))
        elif event.action == "huge":
            self.add_infeasible()
        elif event.action in {"step", "steps"}:
            for _ in range(_STEPS if event.action == "steps" else 1):
                self.step()
        elif request_id in self.outcomes:
            self._happen_to(request_id, event.action)
        self.look()

    def _happen_to(self, request_id: str, action: str) -> None:
        is_live = self.outcomes[request_id].finish_reason is None
        self.story.tell(f"{action} {request_id}")
        if action == "abort":
            self.take(self.engine.abort([request_id]))
            self._look_after_abort(request_id)
        elif action == "hold" and is_live:
            self.engine.hold(request_id, "test")
            self.held.add(request_id)
        elif action == "release":
            self.engine.release(request_id, "test")
            self.held.discard(request_id)

    def add(self, event: Event) -> None:
        """Add a request, whose prompt begins as those of the same stem do."""
        request_id = f"r{len(self.outcomes)}"
        prompt = [(event.stem * 101 + i) % 900 for i in range(event.num_tokens)] + [event.which]
        number = event.which
        self.story.tell(
            f"add {request_id}: {len(prompt)} tokens (stem {event.stem}), max_tokens "
            f"{event.max_tokens}, priority {number}"
        )
        self.outcomes[request_id] = Outcome()
        self.expected[request_id] = expected_output(prompt, event.max_tokens, number)
        source = request(
            request_id, prompt, event.max_tokens, seed=number, priority=number,
            arrival_s=float(len(self.outcomes)), metadata={"tenant": f"t{event.stem}"},
        )  # fmt: skip
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
        watch = self.watch(self) if self.watch else None
        num_plans = len(plans_of(self.engine))
        ended = {name for name, one in self.outcomes.items() if one.finish_reason is not None}
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
        is_planned = len(plans_of(self.engine)) > num_plans
        if is_planned:
            self._look_at_plans(num_plans, ended)
        if watch:
            watch(is_planned)

    def _look_at_plans(self, num_seen: int, ended: set[str]) -> None:
        """See that the executor may forget what ended, and that what is counted is true."""
        core, plans = self.engine.core, plans_of(self.engine)
        for plan in plans[num_seen:]:
            self._paused |= {self._names[row] for row in plan.pauses}
            self._paused -= {*plan.drops, *(one.request_id for one in plan.starts)}
            self._names.update({one.row: one.request_id for one in plan.starts})
            first = {one.row: one.start for one in plan.advances}
            for one in plan.starts:
                self._hits.setdefault(one.request_id, first[one.row])
        kept = sorted(ended & self._paused)
        self.story.see("S5", not kept, f"{kept} ended, and the executor is not told")
        is_step = 0 <= core.view.step - plans[-1].step <= 1
        self.story.see("S12", is_step, f"view.step is {core.view.step}, of step {plans[-1].step}")
        counted = core.num_preemptions, core.num_hit_tokens
        seen = sum(len(one.pauses) for one in plans), sum(self._hits.values())
        told = f"(preemptions, tokens hit) are {seen}, and counted are {counted}"
        is_counted = counted[0] >= seen[0] and counted[1] == seen[1] <= core.num_queried_tokens
        self.story.see("S12", is_counted, told)

    def take(self, outputs: list[EngineOutput]) -> None:
        """Give outputs to their requests."""
        for output in outputs:
            known = self.outcomes.get(output.request_id)
            is_open = known is not None and known.finish_reason is None
            self.story.see("S2", is_open, f"{output.request_id}: an output after its end")
            if known is not None:
                known.take(output)

    def _look_at_requests(self) -> None:
        """Every request that has not ended is in one queue, once."""
        core = self.engine.core
        queued = [one.request_id for one in (*core.running, *core.waiting)]
        live = [name for name, one in self.outcomes.items() if one.finish_reason is None]
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
        late = [name for name, one in self.outcomes.items() if one.finish_reason is None]
        self.story.see("S4", not late, f"{', '.join(late)} did not end within {num_steps} steps")
        for request_id, outcome in self.outcomes.items():
            wanted = self.expected[request_id]
            if outcome.finish_reason != "length":
                wanted = wanted[: len(outcome.token_ids)]
            self.story.see(
                "S6",
                outcome.token_ids == wanted,
                f"{request_id} got {outcome.token_ids}, and alone it gets {wanted}",
            )
        counts = self.engine.core.allocator.counts()
        self.story.see("S5", counts.used == 0, f"all have ended, and {counts.used} blocks are used")


def play(setup: EngineSetup, events: list[Event], story: Story, **watch: Any) -> Run:
    """Play a trace from its beginning to the end of all its requests."""
    run = Run(make_engine(setup), story, **watch)
    for event in events:
        run.happen(event)
    run.end()
    return run


def is_plain(one: Request) -> bool:
    """Return whether a request runs and could be advanced now."""
    return one.state is RequestState.RUNNING and not one.is_decided and one.num_placeholders == 0
