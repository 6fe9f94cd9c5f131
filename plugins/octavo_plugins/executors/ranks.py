"""Runs a model that is split between processes: tensor parallelism on one machine.

Each rank is a process with its share of the heads and of the MLP; all are sent the same plans and
sample the same tokens, of which those of rank 0 are taken. No rank is started for a model that
cannot be split.

Knows plans, messages and ranks. Does not know the runner or tensors.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from octavo.engine.plan import RowError, RowSpec
from octavo.errors import EngineDeadError, EngineError
from octavo.execution.load import build_architecture
from octavo.execution.measure import measure_costs
from octavo.interfaces.adapter import AdapterSpec
from octavo.interfaces.executor import Executor, ExecutorFacts
from octavo.interfaces.ops import Collective
from octavo.model_files import locate_model, open_checkpoint
from octavo.sampling_params import SamplingParams
from octavo_plugins.executors import rank_wire as wire
from octavo_plugins.executors.rank_group import RankGroup

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from torch import Tensor

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.plan import StepPlan, StepResult
    from octavo.interfaces.executor import Resource

#: what a rank has no use for, and need not be able to import
_ENGINES_OWN: Final = ("executor", "scheduler", "allocator", "eviction", "dialect", "parser")
_NO_PROCESSORS: Final = (
    "logits_processors are callables, which cannot be sent to the ranks of a split model; "
    "use tensor_parallel_size=1"
)


class RanksExecutor(Executor):
    """A model in `tensor-parallel-size` processes of this machine."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._group: RankGroup | None = None
        self._numbers = count()
        #: why the requests of some rows get no token
        self._refused: dict[int, str] = {}

    def start(self, config: ResolvedConfig) -> ExecutorFacts:
        """Start the ranks, have each load its share, and measure what steps cost all together."""
        size = config.engine.tensor_parallel_size
        path = locate_model(config)
        check_split(config, path, size)
        config_json = _for_ranks(config, path).to_json()
        self._group = group = RankGroup(size, self.failed)
        try:
            with tempfile.TemporaryDirectory(prefix="octavo-ranks-") as folder:
                loads: list[wire.ToRank] = [
                    wire.Load(config_json, rank, size, folder) for rank in range(size)
                ]
                loaded = group.call(loads).result()[0]
            assert isinstance(loaded, wire.Loaded)  # noqa: S101 - what `Load` is answered with
            max_drafts = config.build("proposer").max_drafts
            costs = measure_costs(_Rehearsal(group, loaded), max_drafts=max_drafts)
        except BaseException:
            self.close()
            raise
        return replace(loaded.facts, costs=costs)

    def submit(self, plan: StepPlan) -> RanksHandle:
        """Send the plan to all ranks, and return at once."""
        for row in (*plan.ends, *plan.pauses):
            self._refused.pop(row, None)
        message = self._message(plan)
        failed = {}
        if self._refused:
            failed = {
                index: self._refused[advance.row]
                for index, advance in enumerate(plan.advances)
                if advance.row in self._refused
            }
        return RanksHandle(self._running().call_all(message), failed)

    def _message(self, plan: StepPlan) -> wire.Run:
        """Return what the ranks are told of a step, and note which requests must fail in it."""
        if not plan.starts:
            return wire.Run(plan)
        message = wire.Run(replace(plan, starts=[]))
        numbers: dict[tuple[int, ...], int] = {}
        reasons: list[str | None] = []
        for start in plan.starts:
            spec = start.spec
            number = numbers.setdefault(_identity(spec), len(message.specs))
            if number == len(message.specs):
                sendable, why = _sendable(spec)
                message.specs.append(sendable)
                reasons.append(why)
            reason = reasons[number]
            if reason is not None:
                self._refused[start.row] = reason
            row, name, token_ids = start.row, start.request_id, start.token_ids
            message.starts.append(wire.Start(row, name, token_ids, number, spec.seed, spec.choice))
        return message

    def prepare(self, resource: Resource) -> Future[str]:
        """Have every rank make a grammar or an adapter ready."""
        number = next(self._numbers)
        return self._running().prepare(wire.Prepare(number, **_named(resource)))

    def discard(self, resource: Resource) -> None:
        """Have every rank forget a resource."""
        self._running().tell(wire.Discard(**_named(resource)))

    def _running(self) -> RankGroup:
        if self._group is None:
            raise EngineError("the executor is not running")
        return self._group

    def close(self) -> None:
        """End all ranks."""
        if self._group is not None:
            self._group.close()
            self._group = None


def _identity(spec: RowSpec) -> tuple[int, ...]:
    """Return what is equal for the sequences of one request, which share the objects."""
    shared = spec.params, spec.eos_token_ids, spec.bad_words_ids, spec.grammar, spec.adapters
    rest = spec.reasoning, spec.pooling
    return spec.num_prompt_tokens, *map(id, (*shared, *rest))


def _sendable(spec: RowSpec) -> tuple[RowSpec, str | None]:
    """Return what the ranks are to know of a request, and why it must fail, if it must.

    A request that cannot be sent as it is has a row all the same: an empty one of its length.
    """
    # what the front end alone reads, and may hold any text
    params = replace(spec.params, stop=None, structured_outputs=None)
    sendable = replace(spec, params=params)
    why = _NO_PROCESSORS if params.logits_processors else wire.why_not(sendable)
    if why is None:
        return sendable, None
    return RowSpec(SamplingParams(), 0, 0, spec.num_prompt_tokens), why


class RanksHandle:
    """A step that all ranks run."""

    __slots__ = ("_failed", "_future")

    def __init__(self, future: Future[list[wire.Reply]], failed: dict[int, str]) -> None:
        self._future = future
        self._failed = failed

    def is_done(self) -> bool:
        """Return whether all ranks have answered."""
        return self._future.done()

    def result(self) -> StepResult:
        """Wait for all ranks. Raises EngineDeadError when one has ended, or they disagree."""
        replies = [reply for reply in self._future.result() if isinstance(reply, wire.Stepped)]
        result = replies[0].result
        checks = [reply.check for reply in replies]
        if result is None or len(set(checks)) > 1:
            raise EngineDeadError(f"the ranks disagree on the tokens of a step: {checks}")
        for index, why in self._failed.items():
            result.token_ids[index] = ()
            result.errors[index] = RowError(why)
        return result


class _Rehearsal:
    """Runs steps over meaningless tokens, for those who measure."""

    def __init__(self, group: RankGroup, loaded: wire.Loaded) -> None:
        self._group = group
        self.shape = loaded.limits

    def run_dummy(self, num_tokens: int, context: int = 0) -> None:
        """Run one step on all ranks."""
        self._group.call_all(wire.Rehearse(num_tokens, context)).result()


class _Outline(Collective):
    """So many ranks, of which none is there: enough to know whether a model can be split."""

    def __init__(self, size: int) -> None:
        self.rank, self.size = 0, size

    def all_reduce(self, x: Tensor) -> None:
        """Nobody computes with an outline."""
        del x
        raise EngineError("there are no ranks yet")

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """Nobody computes with an outline."""
        del out, x
        raise EngineError("there are no ranks yet")


def check_split(config: ResolvedConfig, path: Path, size: int) -> None:
    """Raise the typed error of a model that cannot be split between so many ranks."""
    checkpoint = open_checkpoint(config, path)
    try:
        build_architecture(config, checkpoint, _Outline(size) if size > 1 else None)
    finally:
        checkpoint.close()


def _for_ranks(config: ResolvedConfig, path: Path) -> ResolvedConfig:
    """Return what the ranks are to know: where the model lies, and the components that run it."""
    parts = {
        name: {kind: one for kind, one in getattr(config, name).items() if kind not in _ENGINES_OWN}
        for name in ("chosen", "active")
    }
    return config.with_changes(model={"name": str(path)}).model_copy(update=parts)


def _named(resource: Resource) -> dict[str, Any]:
    return {"adapter" if isinstance(resource, AdapterSpec) else "grammar": resource}
