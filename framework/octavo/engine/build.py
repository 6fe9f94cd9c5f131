"""From a resolved config to a running engine. Imports the chosen components and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine.budget import Limits
from octavo.engine.engine import Engine
from octavo.engine.eviction_guard import GuardedEviction
from octavo.engine.messages import EngineInfo
from octavo.engine.scheduling import SchedulingCore
from octavo.engine.speculation import Speculator
from octavo.errors import UnsupportedError
from octavo.interfaces.allocator import AllocatorContext
from octavo.interfaces.proposer import EngineProposer

if TYPE_CHECKING:
    from octavo.config.resolved import ResolvedConfig
    from octavo.interfaces.allocator import Allocator
    from octavo.interfaces.executor import Executor, ExecutorFacts


def build_engine(config: ResolvedConfig, executor: Executor | None = None) -> Engine:
    """Start the executor (which loads the model) and put an engine around it.

    `executor` stands in for the configured one. Raises the typed errors of loading; nothing is
    left running then.
    """
    if executor is None:
        executor = config.build("executor")
    try:
        facts = executor.start(config)
        settings = config.engine
        context = AllocatorContext(
            num_blocks=facts.num_blocks,
            block_size=settings.block_size,
            max_model_len=facts.max_model_len,
            enable_prefix_caching=settings.enable_prefix_caching,
            eviction=GuardedEviction(config.build("eviction")),
            groups=facts.groups,
            max_tokens_ahead=settings.max_tokens_ahead,
        )
        allocator: Allocator = config.build("allocator", context=context)
        limits = Limits(
            settings.max_num_seqs,
            settings.max_num_batched_tokens,
            settings.max_step_ms,
            settings.block_size,
            facts.max_model_len,
            settings.max_num_queued_reqs,
            facts.max_logit_rows,
        )
        speculator = _speculator(config, facts)
        core = SchedulingCore(config.build("scheduler"), allocator, limits, facts.costs, speculator)
    except BaseException:
        executor.close()
        raise
    info = _info(config, facts, allocator.capacity_tokens)
    clock = executor.clock()
    if clock is None:
        return Engine(core, executor, info, depth=settings.depth)
    return Engine(core, executor, info, depth=settings.depth, clock=clock, sleep=clock.sleep)


def _info(config: ResolvedConfig, facts: ExecutorFacts, capacity_tokens: int) -> EngineInfo:
    """Return what the front end must know."""
    settings, vocab_size = config.engine, facts.vocab_size
    max_logprobs = vocab_size if settings.max_logprobs < 0 else settings.max_logprobs
    return EngineInfo(
        vocab_size,
        facts.max_model_len,
        capacity_tokens,
        min(max_logprobs, vocab_size),
        settings.max_num_queued_reqs,
        facts.weight_bytes,
        facts.num_multiplied_weights,
    )


def _speculator(config: ResolvedConfig, facts: ExecutorFacts) -> Speculator:
    """Return what decides on drafts. Raises UnsupportedError for a model that cannot verify any."""
    chosen = config.chosen["proposer"]
    proposer = chosen.build() if issubclass(chosen.load(), EngineProposer) else None
    speculator = Speculator(facts, proposer)
    if speculator.is_active and not facts.can_roll_back:
        raise UnsupportedError(
            f"the proposer '{chosen.name}' cannot be used with this model",
            "some of its layers keep one state, which cannot take back tokens that were guessed",
            "use --proposer none",
        )
    return speculator
