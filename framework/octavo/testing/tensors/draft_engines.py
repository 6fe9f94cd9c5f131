"""An engine whose drafts come from a proposer beside the model, with everything seen that it does.

Some of the drafts can be spoilt on their way to the engine, so that they are rejected however good
the proposer is.

Knows runners, rows and drafts. Does not know how any proposer guesses.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.execution.load import facts_of, load_runner
from octavo.interfaces.executor import DoneStep, Executor, StepCosts
from octavo.interfaces.proposer import ExecutorProposer
from octavo.testing.invariants import where_raised
from octavo.testing.made_up_model import settings_beside
from octavo.testing.subjects import stock_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.engine import Engine
    from octavo.engine.plan import StepPlan
    from octavo.execution.rows import Rows
    from octavo.execution.runner import ModelRunner
    from octavo.interfaces.executor import ExecutorFacts
    from octavo.testing.subjects import Subject

#: steps cost the same however long they are, so that as many drafts are wanted as may be
_COSTS = StepCosts.linear(1.0, 1e-6)


@dataclass(slots=True)
class Proposal:
    """What was proposed after these tokens of a request, of `wanted` at most."""

    tokens: tuple[int, ...]
    is_greedy: bool
    wanted: int
    drafts: tuple[int, ...]


@dataclass(slots=True)
class Watch:
    """What was seen: all proposals, and by an invariant's number what was wrong."""

    proposals: list[Proposal] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)


class WatchedProposer(ExecutorProposer):
    """Stands before a proposer that is loaded and prepared. `is_spoiling`: changes some drafts."""

    def __init__(self, inner: ExecutorProposer, runner: ModelRunner, *, is_spoiling: bool) -> None:
        super().__init__(inner.options)
        self.inner = inner
        self.watch = Watch()
        self._rows: Rows = runner.rows
        self._vocab_size = runner.architecture.vocab_size
        self._is_spoiling = is_spoiling

    @property
    def max_drafts(self) -> int:
        """Return the proposer's."""
        return self.inner.max_drafts

    def load(self, config: ResolvedConfig, target: Any) -> None:
        """Done before it was watched."""

    def cache_specs(self) -> Sequence[Any]:
        """Return the proposer's."""
        return self.inner.cache_specs()

    def prepare(self, rows: Any, capacity: Any, layout: Any, num_blocks: int) -> None:
        """Done before it was watched."""

    def propose(self, wanted: Sequence[tuple[int, int]]) -> list[Sequence[int]]:
        """Let it propose, look at what it did, and spoil some of it."""
        before = self._known()
        try:
            given = self.inner.propose(wanted)
        except Exception as error:  # the runner would do without its drafts
            self._tell("D2", f"propose raised {where_raised(error)}")
            raise
        self._compare(before, "propose")
        if len(given) != len(wanted):
            self._tell("D2", f"{len(given)} answers to {len(wanted)} rows")
            given = [()] * len(wanted)
        for (row, most), drafts in zip(wanted, given, strict=True):
            self._note(row, most, tuple(drafts))
        return [self._spoilt(number, drafts) for number, drafts in enumerate(given)]

    def rehearse(self) -> None:
        """Let it rehearse, and look at what it did."""
        before = self._known()
        self.inner.rehearse()
        self._compare(before, "rehearse")

    def forget(self, row: int) -> None:
        """Let it forget."""
        try:
            self.inner.forget(row)
        except Exception as error:  # as above
            self._tell("D3", f"forget raised {where_raised(error)}")
            raise

    def _note(self, row: int, most: int, drafts: tuple[int, ...]) -> None:
        tokens = tuple(self._rows.history(row))
        limit = min(most, self.max_drafts)
        if len(drafts) > limit:
            self._tell("D2", f"{len(drafts)} drafts after {tokens}, of {limit} at most")
        if not all(0 <= int(one) < self._vocab_size for one in drafts):
            self._tell("D2", f"drafts after {tokens} are no ids of the vocabulary: {drafts}")
        is_greedy = not self._rows.spec(row).params.temperature
        self.watch.proposals.append(Proposal(tokens, is_greedy, most, drafts))

    def _spoilt(self, number: int, drafts: Sequence[int]) -> Sequence[int]:
        place = (len(self.watch.proposals) + number) % (len(drafts) + 3)
        if not self._is_spoiling or place >= len(drafts):
            return drafts
        return (*drafts[:place], (drafts[place] + 1) % self._vocab_size, *drafts[place + 1 :])

    def _known(self) -> list[Any]:
        """Return all that is known of requests: guesses behind their tokens are nobody's."""
        rows = self._rows
        live = [row for row, spec in enumerate(rows.specs) if spec is not None]
        tables = [[table[row].tolist() for row in live] for table in rows.block_tables]
        return [[(row, rows.history(row)) for row in live], tables, list(rows.num_blocks)]

    def _compare(self, before: list[Any], what: str) -> None:
        names = ("tokens", "block tables", "numbers of blocks")
        for name, old, new in zip(names, before, self._known(), strict=True):
            if old != new:
                self._tell("D4", f"{what} changed the {name} of requests from {old} to {new}")

    def _tell(self, number: str, text: str) -> None:
        self.watch.problems.append((number, text))


class DraftingExecutor(Executor):
    """Runs the model on this thread, with its proposer watched."""

    runner: ModelRunner

    def __init__(self, *, is_spoiling: bool = False) -> None:
        super().__init__()
        self._is_spoiling = is_spoiling

    @property
    def watched(self) -> WatchedProposer:
        """Return the proposer that is watched."""
        proposer = self.runner.proposer
        if not isinstance(proposer, WatchedProposer):
            raise TypeError(f"{proposer!r} runs beside no model")
        return proposer

    def start(self, config: ResolvedConfig) -> ExecutorFacts:
        """Load the model and what drafts beside it."""
        torch.set_num_threads(config.engine.threads or 1)
        runner: ModelRunner = load_runner(config, config.build("platform"))
        inner = runner.proposer
        if inner is not None:
            runner.proposer = WatchedProposer(inner, runner, is_spoiling=self._is_spoiling)
        self.runner = runner
        return replace(facts_of(runner, _COSTS), draft_ms=0.0)

    def submit(self, plan: StepPlan) -> DoneStep:
        """Run the step now."""
        return DoneStep(self.runner.run(plan))

    def close(self) -> None:
        """Nothing was started that goes on."""


@contextmanager
def drafting(
    subject: Subject | None, *, is_spoiling: bool = False, **settings: Any
) -> Iterator[tuple[Engine, DraftingExecutor]]:
    """Start an engine on the sample's model, with a proposer or with none, and close it."""
    given, catalogue = {}, stock_catalogue()
    chosen: dict[str, Any] = {"proposer": "none"}
    if subject is not None:
        given = subject.sample if isinstance(subject.sample, dict) else {}
        entry = subject.entry
        catalogue = catalogue.with_component("proposer", entry.component, entry.provider)
        options = {f"proposer.{key}": value for key, value in subject.options.items()}
        chosen = {"proposer": subject.name, **options}
    parts = {"ops": "torch", "attention": "torch"}
    threads = torch.get_num_threads()
    with settings_beside({**parts, **given, **settings, **chosen}) as overrides:
        executor = DraftingExecutor(is_spoiling=is_spoiling)
        engine = build_engine(resolve(catalogue, overrides=overrides), executor)
        try:
            yield engine, executor
        finally:
            engine.close()
            torch.set_num_threads(threads)
