"""Loads the configured model and returns a runner around it.

Knows the config, files and components' names. Does not know any format, family or op set.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import torch

from octavo.errors import CapacityError, ConfigError
from octavo.execution.adapters import AdapterStore
from octavo.execution.buffers import (
    StepCapacity,
    make_buffers,
)
from octavo.execution.cache_layout import CacheLayout
from octavo.execution.grammars import GrammarStore
from octavo.execution.loader import load_parameters
from octavo.execution.measure import measure_draft_ms
from octavo.execution.memory import KVDemand, num_blocks_for
from octavo.execution.resources import Resources
from octavo.execution.runner import ModelRunner, RunnerShape, WeightFacts
from octavo.interfaces.attention import StateSpec
from octavo.interfaces.cache_demand import CacheDemand
from octavo.interfaces.executor import ExecutorFacts
from octavo.interfaces.proposer import ExecutorProposer
from octavo.model_files import architecture_of, locate_model, open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.config.resolved import ResolvedConfig
    from octavo.interfaces.architecture import Architecture
    from octavo.interfaces.executor import StepCosts
    from octavo.interfaces.ops import Collective, OpSet
    from octavo.interfaces.platform import Platform
    from octavo.interfaces.proposer import Proposer
    from octavo.interfaces.source import Progress
    from octavo.interfaces.weights import Checkpoint

logger = logging.getLogger(__name__)
RunnerT = TypeVar("RunnerT", bound=ModelRunner)


def load_runner(
    config: ResolvedConfig,
    platform: Platform,
    progress: Progress | None = None,
    *,
    collective: Collective | None = None,
    runner_type: type[RunnerT] = ModelRunner,  # type: ignore[assignment]
) -> RunnerT:
    """Open, check, pack and allocate: with a collective, this rank's share alone.

    Raises the typed errors of loading.
    """
    try:
        return _load_runner(config, platform, progress, collective, runner_type)
    except MemoryError as error:
        raise CapacityError(
            "there is not enough memory for the model and its KV cache",
            str(error) or "the system refuses more",
            "raise the limit of this process (ulimit -v, cgroup), or lower kv-cache-memory-bytes, "
            "max-model-len or max-num-batched-tokens",
        ) from error


def _load_runner(
    config: ResolvedConfig,
    platform: Platform,
    progress: Progress | None,
    collective: Collective | None,
    runner_type: type[RunnerT],
) -> RunnerT:
    path = locate_model(config, progress)
    architecture, weight_facts = _load_architecture(config, path, platform, progress, collective)
    drafter, max_drafts = _load_proposer(config, architecture)
    specs = architecture.cache_specs()
    layout = CacheLayout.of(specs, () if drafter is None else drafter.cache_specs())
    shape = runner_shape(config, architecture, layout, platform.available_bytes())
    shape = replace(shape, max_drafts=max_drafts)
    architecture.prepare(shape.max_num_tokens, shape.max_logit_rows, shape.max_model_len)
    capacity = StepCapacity(
        max_tokens=shape.max_num_tokens,
        max_rows=shape.max_logit_rows,
        max_seqs=shape.max_num_seqs,
        max_blocks=shape.max_blocks_per_seq,
        block_size=shape.block_size,
    )
    own, others = layout.part(0, len(specs)), layout.part(len(specs), len(layout.specs))
    buffers = make_buffers(architecture, capacity, own, shape.num_blocks)
    stages = tuple(config.build_all("sampler-stage").values())
    adapters = AdapterStore.of(config, architecture)
    grammars = GrammarStore.of(config, path, architecture.vocab_size)
    resources = Resources(grammars, adapters)
    runner = runner_type(
        architecture, buffers, stages, shape, resources=resources, proposer=drafter
    )
    if adapters is not None:
        adapters.on_change = runner.record_anew
    runner.weight_facts = weight_facts
    if drafter is not None:
        drafter.prepare(runner.rows, capacity, others, shape.num_blocks)
    return runner


def _load_architecture(
    config: ResolvedConfig,
    path: Path,
    platform: Platform,
    progress: Progress | None,
    collective: Collective | None,
) -> tuple[Architecture, WeightFacts]:
    """Return the model in the files at `path`, its weights packed."""
    checkpoint = open_checkpoint(config, path)
    try:
        architecture = build_architecture(config, checkpoint, collective)
        load_parameters(architecture, checkpoint, progress, platform.available_bytes())
        return architecture, weight_facts_of(architecture, checkpoint)
    finally:
        checkpoint.close()


def _load_proposer(
    config: ResolvedConfig, architecture: Architecture
) -> tuple[ExecutorProposer | None, int]:
    """Return the proposer if it runs beside the model, loaded, and the most drafts of any."""
    proposer: Proposer = config.build("proposer")
    if not isinstance(proposer, ExecutorProposer):
        return None, proposer.max_drafts
    proposer.load(config, architecture)
    return proposer, proposer.max_drafts


def weight_facts_of(architecture: Architecture, checkpoint: Checkpoint) -> WeightFacts:
    """Add up the matrices that every token is multiplied with.

    An embedding counts only when it is the head as well: no linear has its shape then.
    """
    specs = architecture.parameters()
    linears = [spec for spec in specs if spec.kind == "linear"]
    head_rows = architecture.vocab_size
    if not any(spec.shapes[0][0] == head_rows for spec in linears):
        linears += [spec for spec in specs if spec.kind == "embedding"]
    names = [
        (name, shape)
        for spec in linears
        for name, shape in zip(spec.sources, spec.shapes, strict=True)
    ]
    return WeightFacts(
        sum(checkpoint.blocks(name).num_bytes for name, _ in names),
        sum(math.prod(shape) for _, shape in names),
    )


def facts_of(runner: ModelRunner, costs: StepCosts) -> ExecutorFacts:
    """Return what an executor that holds this runner offers; what drafts take is measured."""
    shape, drafter = runner.shape, runner.proposer
    return ExecutorFacts(
        shape.num_blocks,
        shape.max_model_len,
        runner.architecture.vocab_size,
        costs,
        runner.weight_facts.num_bytes,
        runner.weight_facts.num_weights,
        groups=shape.groups,
        max_logit_rows=shape.max_logit_rows,
        max_drafts=0 if drafter is None else drafter.max_drafts,
        draft_ms=0.0 if drafter is None else measure_draft_ms(drafter.rehearse),
        can_roll_back=shape.can_roll_back,
    )


def build_architecture(
    config: ResolvedConfig, checkpoint: Checkpoint, collective: Collective | None = None
) -> Architecture:
    """Return the model family that serves the checkpoint, not loaded yet.

    Raises ModelLoadError naming the architecture and those that are known, ConfigError for one
    that the ranks of the collective cannot share.
    """
    name, component = architecture_of(config, checkpoint.config, checkpoint.path)
    ops: OpSet = config.build("ops")
    ops.collective = collective
    architecture: Architecture = component.load()(checkpoint.config, ops, config.build("attention"))
    if collective is not None:
        _check_is_split(architecture, name, collective.size)
    return architecture


def _check_is_split(architecture: Architecture, name: str, size: int) -> None:
    if all(spec.split == "none" for spec in architecture.parameters()):
        raise ConfigError(
            f"the architecture '{name}' cannot be split between {size} ranks "
            "(tensor-parallel-size)",
            "valid sizes: 1",
        )


def runner_shape(
    config: ResolvedConfig, architecture: Architecture, layout: CacheLayout, available_bytes: int
) -> RunnerShape:
    """Settle context, blocks and batch from settings, model and memory.

    A context that was not asked for is cut to what the cache holds; one that was asked for and
    exceeds the model is refused with CapacityError. The ranks of a split model agree on the
    fewest blocks that one of them finds room for.
    """
    settings = config.engine
    longest = architecture.max_positions
    if settings.max_model_len is not None and settings.max_model_len > longest:
        raise CapacityError(
            f"max-model-len {settings.max_model_len} is more than the model allows",
            f"its config allows {longest} positions, rope scaling counted",
        )
    max_model_len = settings.max_model_len or longest
    cache = CacheDemand(layout.groups, settings.block_size, settings.max_tokens_ahead)
    num_blocks = _num_blocks(config, architecture, layout, max_model_len, available_bytes)
    capacity_tokens = cache.longest(num_blocks - 1, max_model_len)
    if capacity_tokens < max_model_len:
        logger.warning(
            "the KV cache holds %d tokens, less than the context of %d: "
            "longer requests will be refused",
            capacity_tokens,
            max_model_len,
        )
        if settings.max_model_len is None:
            max_model_len = capacity_tokens
    return RunnerShape(
        settings.max_num_seqs,
        max(settings.max_num_batched_tokens, settings.max_num_seqs),
        max_model_len,
        settings.block_size,
        num_blocks,
        groups=layout.groups,
        can_roll_back=not any(isinstance(spec, StateSpec) for spec in layout.specs),
    )


def _num_blocks(
    config: ResolvedConfig,
    architecture: Architecture,
    layout: CacheLayout,
    max_model_len: int,
    available_bytes: int,
) -> int:
    """Return how many blocks all ranks have room for, each with its share of a block's bytes."""
    settings, collective = config.engine, architecture.ops.collective
    num_ranks = 1 if collective is None else collective.size
    demand = KVDemand(
        num_ranks * layout.bytes_per_block(architecture.attention, settings.block_size),
        settings.block_size,
        max_model_len,
        settings.max_num_seqs,
        len(layout.groups),
    )
    num_blocks = num_blocks_for(
        demand,
        available_bytes,
        wanted_bytes=settings.kv_cache_memory_bytes,
        wanted_blocks=settings.num_gpu_blocks_override,
    )
    return num_blocks if collective is None else _least(num_blocks, collective)


def _least(number: int, collective: Collective) -> int:
    """Return the smallest of all ranks' numbers."""
    numbers = torch.zeros(collective.size, 1, dtype=torch.int64)
    collective.all_gather(numbers, torch.tensor([number]))
    return int(numbers.min())
