"""Engines on the stub executor, and a driver that checks what must hold after every step.

Knows the engine and its parts. Does not know which of them is under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any

from octavo.engine.budget import Limits
from octavo.engine.engine import Engine
from octavo.engine.messages import EngineInfo, EngineRequest
from octavo.engine.scheduling import SchedulingCore
from octavo.engine.speculation import Speculator
from octavo.interfaces.allocator import AllocatorContext
from octavo.interfaces.executor import CacheGroup, StepCosts
from octavo.interfaces.proposer import EngineProposer
from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.sampling_params import SamplingParams
from octavo.testing.invariants import PromiseBroken
from octavo.testing.stub_executor import VOCAB, StubExecutor, next_token, require, stub_facts
from octavo.testing.subjects import stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octavo.engine.messages import EngineOutput
    from octavo.engine.plan import StepPlan
    from octavo.engine.request import Request
    from octavo.interfaces.allocator import Allocator
    from octavo.interfaces.eviction import Eviction
    from octavo.interfaces.proposer import DraftView

#: the request "r8" has the seed 2 where its drafts are to be guessed
NUM_SEEDS = 6
_COSTS = StepCosts.linear(1.0, 0.1)


@dataclass
class EngineSetup:
    """What a test may vary. `num_blocks` counts the null block.

    Where no allocator or eviction is given, the stock ones serve.
    """

    num_blocks: int = 64
    block_size: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 32
    max_step_ms: float | None = None
    max_model_len: int = 128
    max_num_queued_reqs: int = 1000
    enable_prefix_caching: bool = True
    depth: int = 0
    is_late: bool = False
    groups: tuple[CacheGroup, ...] = (CacheGroup(),)
    proposer: EngineProposer | None = None
    max_executor_drafts: int = 0
    max_logit_rows: int = 1024
    costs: StepCosts = _COSTS
    policy: SchedulerPolicy = field(default_factory=SchedulerPolicy)
    allocator: Callable[[AllocatorContext], Allocator] | None = None
    eviction: Callable[[], Eviction] | None = None
    core: type[SchedulingCore] = SchedulingCore


class Clock:
    """A clock that moves by hand, one second a call."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time, a second later than the last one."""
        self.now_s += 1.0
        return self.now_s


def make_engine(setup: EngineSetup | None = None) -> Engine:
    """Return an engine without a model; `engine.executor` is a StubExecutor."""
    setup = setup or EngineSetup()
    facts = stub_facts(
        setup.num_blocks,
        max_model_len=setup.max_model_len,
        groups=setup.groups,
        max_drafts=setup.max_executor_drafts,
        max_logit_rows=setup.max_logit_rows,
        costs=setup.costs,
    )
    executor = StubExecutor(facts, setup.block_size, is_late=setup.is_late)
    context = AllocatorContext(
        num_blocks=setup.num_blocks,
        block_size=setup.block_size,
        max_model_len=setup.max_model_len,
        enable_prefix_caching=setup.enable_prefix_caching,
        eviction=setup.eviction() if setup.eviction else stock("eviction", "lru"),
        groups=setup.groups,
        max_tokens_ahead=(setup.depth + 1) * setup.max_num_batched_tokens,
    )
    allocator: Allocator = (
        setup.allocator(context)
        if setup.allocator
        else stock("allocator", "paged", context=context)
    )
    limits = Limits(
        setup.max_num_seqs,
        setup.max_num_batched_tokens,
        setup.max_step_ms,
        setup.block_size,
        setup.max_model_len,
        setup.max_num_queued_reqs,
        executor.facts.max_logit_rows,
    )
    speculator = Speculator(executor.facts, setup.proposer)
    core = setup.core(setup.policy, allocator, limits, executor.facts.costs, speculator)
    info = EngineInfo(
        VOCAB, setup.max_model_len, allocator.capacity_tokens, 20, setup.max_num_queued_reqs
    )
    return Engine(core, executor, info, depth=setup.depth, clock=Clock(), sleep=lambda _: None)


def request(
    request_id: str, prompt: list[int], max_tokens: int = 8, **fields: Any
) -> EngineRequest:
    """Return a request; keywords that SamplingParams knows go there."""
    own = {field.name for field in fields_of(EngineRequest)}
    params = SamplingParams(
        max_tokens=max_tokens, **{key: value for key, value in fields.items() if key not in own}
    )
    kept = {key: value for key, value in fields.items() if key in own}
    if "stop_token_ids" in kept:
        params.stop_token_ids = kept["stop_token_ids"]
        kept["stop_token_ids"] = frozenset(params.stop_token_ids)
    kept.setdefault("seed", 0)
    kept.setdefault("arrival_s", 0.0)
    return EngineRequest(request_id, prompt, params, max_tokens, **kept)


@dataclass
class Outcome:
    """All that the engine said of one request."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    outputs: list[EngineOutput] = field(default_factory=list)

    def take(self, output: EngineOutput) -> None:
        """Add one output; nothing may come after the last."""
        require(self.finish_reason is None, f"{output.request_id}: an output after its end")
        self.token_ids += output.token_ids
        self.finish_reason = output.finish_reason
        self.outputs.append(output)


def plans_of(engine: Engine) -> list[StepPlan]:
    """Return the plans that an executor kept which keeps them, as the stub does."""
    plans: list[StepPlan] = getattr(engine.executor, "plans", [])
    return plans


def check_invariants(engine: Engine) -> None:
    """Raise PromiseBroken for the first thing that is wrong after a step."""
    for problem in (*problems_of_blocks(engine), *problems_of_budgets(engine)):
        raise PromiseBroken(problem)


def problems_of_budgets(engine: Engine) -> Iterator[str]:
    """Yield where the last step exceeds a budget (S1)."""
    limits, plans = engine.core.limits, plans_of(engine)
    if len(engine.core.running) > limits.max_num_seqs:
        yield f"{len(engine.core.running)} requests run, of {limits.max_num_seqs} at most"
    if not plans:
        return
    plan = plans[-1]
    if plan.num_tokens > limits.max_num_batched_tokens:
        yield f"a step of {plan.num_tokens} tokens, of {limits.max_num_batched_tokens} at most"
    if len(plan.advances) > limits.max_num_seqs:
        yield f"a step of {len(plan.advances)} sequences, of {limits.max_num_seqs} at most"
    num_rows = sum(1 + len(one.drafts) for one in plan.advances if one.is_sampling)
    if num_rows > limits.max_logit_rows:
        yield f"a step with {num_rows} rows of logits, of {limits.max_logit_rows} at most"
    if limits.max_step_ms is not None:
        # a step that holds one token a sequence, and one block of prefill, is always allowed
        spare = plan.num_tokens - len(plan.advances) >= limits.block_size
        pairs = sum(one.num_tokens * one.start for one in plan.advances)
        took_ms = engine.core.costs.predict_ms(plan.num_tokens, pairs)
        if spare and took_ms > limits.max_step_ms + 1e-3:
            yield f"a step of {took_ms:.2f} ms, of {limits.max_step_ms} at most"


def problems_of_blocks(engine: Engine) -> Iterator[str]:
    """Yield where blocks are lost, held without an owner, or held out of reach (A1, A3)."""
    core = engine.core
    counts = core.allocator.counts()
    if counts.free + counts.used + counts.cached != counts.total:
        yield f"the counts do not add up: {counts}"
    owned = {block for r in core.running for ids in r.table.groups for block in ids} - {0}
    if counts.used != len(owned):
        yield f"{counts.used} blocks are used and {len(owned)} are owned"
    for waiting in core.waiting:
        if waiting.table.block_ids:
            yield f"{waiting.request_id} waits and holds blocks {waiting.table.block_ids}"
    for running in core.running:
        yield from _problems_of_reach(running, core)


def _problems_of_reach(request: Request, core: SchedulingCore) -> Iterator[str]:
    """Blocks out of reach of what is to be computed next are given back, all others are held."""
    size = core.limits.block_size
    for ids, group in zip(request.table.groups, core.allocator.context.groups, strict=True):
        if group.reach is not None and request.num_computed:
            committed = request.num_computed // size * size
            first = max(0, committed - group.reach) // size
            if any(ids[:first]):
                yield f"{request.request_id} holds a block out of reach: {ids}"
            needed = max(0, request.num_computed - group.reach) // size
            if not all(ids[needed:]):
                yield f"{request.request_id} lacks a block within reach: {ids}"


class StubProposer(EngineProposer):
    """Guesses as the stub executor samples, if the seed is that of the number in the id."""

    @property
    def max_drafts(self) -> int:
        """Return 4."""
        return 4

    def propose(self, request: DraftView, max_tokens: int) -> list[int]:
        """Return right guesses, wrong ones, or none, by the length of the text."""
        ids = list(request.token_ids)
        num_known = len(ids)
        seed = int(request.request_id[1:]) % NUM_SEEDS if num_known % 3 else 99
        for _ in range(min(max_tokens, num_known % 6)):
            ids.append(next_token(ids, seed))
        return ids[num_known:]


def run_all(
    engine: Engine, requests: list[EngineRequest], *, max_steps: int = 5000
) -> dict[str, Outcome]:
    """Add all requests and run to the end. Raises PromiseBroken for what is wrong on the way."""
    outcomes = {r.request_id: Outcome() for r in requests}
    for one in requests:
        engine.add(one)
    for _ in range(max_steps):
        if not engine.has_work:
            break
        for output in engine.step():
            outcomes[output.request_id].take(output)
        check_invariants(engine)
    require(not engine.has_work, f"requests are unfinished after {max_steps} steps")
    return outcomes
