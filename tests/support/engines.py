"""Engines on the stub executor, and a driver that checks the invariants after every step."""

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
from octavo.interfaces.executor import CacheGroup
from octavo.interfaces.proposer import EngineProposer
from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.sampling_params import SamplingParams
from octavo_plugins.allocators.paged import PagedAllocator
from octavo_plugins.evictions.lru import Lru
from stub_executor import VOCAB, StubExecutor, next_token

if TYPE_CHECKING:
    from octavo.engine.messages import EngineOutput
    from octavo.engine.request import Request
    from octavo.interfaces.allocator import Allocator
    from octavo.interfaces.proposer import DraftView


@dataclass
class EngineSetup:
    """What a test may vary. `num_blocks` counts the null block."""

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
    policy: SchedulerPolicy = field(default_factory=SchedulerPolicy)
    allocator_class: type[Allocator] = PagedAllocator
    allocator_options: dict[str, Any] = field(default_factory=dict)


class Clock:
    """A clock that moves by hand, one second a call."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def make_engine(setup: EngineSetup | None = None) -> Engine:
    """Return an engine without a model; `engine.executor` is a StubExecutor."""
    setup = setup or EngineSetup()
    executor = StubExecutor(
        setup.num_blocks,
        setup.block_size,
        max_model_len=setup.max_model_len,
        is_late=setup.is_late,
        groups=setup.groups,
        max_drafts=setup.max_executor_drafts,
    )
    context = AllocatorContext(
        num_blocks=setup.num_blocks,
        block_size=setup.block_size,
        max_model_len=setup.max_model_len,
        enable_prefix_caching=setup.enable_prefix_caching,
        eviction=Lru(),
        groups=setup.groups,
        max_tokens_ahead=(setup.depth + 1) * setup.max_num_batched_tokens,
    )
    allocator = setup.allocator_class(None, context, **setup.allocator_options)
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
    core = SchedulingCore(setup.policy, allocator, limits, executor.facts.costs, speculator)
    info = EngineInfo(
        VOCAB, setup.max_model_len, allocator.capacity_tokens, 20, setup.max_num_queued_reqs
    )
    return Engine(core, executor, info, depth=setup.depth, clock=Clock())


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
        assert self.finish_reason is None, "an output after the end"
        self.token_ids += output.token_ids
        self.finish_reason = output.finish_reason
        self.outputs.append(output)


def check_invariants(engine: Engine) -> None:
    """A1, A3 (through the counts) and S1, on the last step."""
    core = engine.core
    counts = core.allocator.counts()
    assert counts.free + counts.used + counts.cached == counts.total
    owned = {block for r in core.running for ids in r.table.groups for block in ids} - {0}
    assert counts.used == len(owned), "blocks are used that nobody owns"
    assert all(not r.table.block_ids for r in core.waiting)
    assert len(core.running) <= core.limits.max_num_seqs
    plans = engine.executor.plans
    if plans:
        assert plans[-1].num_tokens <= core.limits.max_num_batched_tokens
        assert len(plans[-1].advances) <= core.limits.max_num_seqs
        num_rows = sum(1 + len(a.drafts) for a in plans[-1].advances if a.is_sampling)
        assert num_rows <= core.limits.max_logit_rows
    for r in core.running:
        _check_reach(r, core)


def _check_reach(request: Request, core: SchedulingCore) -> None:
    """Blocks out of reach of what is to be computed next are given back, all others are held."""
    size = core.limits.block_size
    for ids, group in zip(request.table.groups, core.allocator.context.groups, strict=True):
        if group.reach is not None and request.num_computed:
            committed = request.num_computed // size * size
            first = max(0, committed - group.reach) // size
            assert not any(ids[:first]), "a block out of reach is still held"
            needed = max(0, request.num_computed - group.reach) // size
            assert all(ids[needed:]), "a block within reach was given back"


class StubProposer(EngineProposer):
    """Guesses as the stub executor samples, if the seed is the number in the request's id."""

    @property
    def max_drafts(self) -> int:
        return 4

    def propose(self, request: DraftView, max_tokens: int) -> list[int]:
        ids = list(request.token_ids)
        num_known = len(ids)
        seed = int(request.request_id[1:]) if num_known % 3 else 99
        for _ in range(min(max_tokens, num_known % 6)):
            ids.append(next_token(ids, seed))
        return ids[num_known:]


def run_all(
    engine: Engine, requests: list[EngineRequest], *, max_steps: int = 5000
) -> dict[str, Outcome]:
    """Add all requests and run to the end."""
    outcomes = {r.request_id: Outcome() for r in requests}
    for one in requests:
        engine.add(one)
    for _ in range(max_steps):
        if not engine.has_work:
            break
        for output in engine.step():
            outcomes[output.request_id].take(output)
        check_invariants(engine)
    assert not engine.has_work, "the engine did not come to an end"
    return outcomes
