"""Loads an architecture's parameters from a checkpoint.

Everything is compared before anything is packed, so that a wrong checkpoint is refused at once
and with all its faults. Knows names and shapes. Does not know file formats, nor how an op set
packs a weight.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelLoadError
from octavo.execution.memory import check_weights_fit
from octavo.execution.sharding import share_of_blocks
from octavo.interfaces.weights import not_finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.architecture import Architecture, ParameterSpec
    from octavo.interfaces.ops import OpSet
    from octavo.interfaces.source import Progress
    from octavo.interfaces.weights import Checkpoint, WeightBlocks

logger = logging.getLogger(__name__)

#: how many names of unused tensors a warning spells out
NAMED_IN_WARNING = 20


@dataclass(slots=True)
class LoadPlan:
    """What to load from a checkpoint, and what is wrong with it.

    An optional parameter that is absent is not among `parameters`. `faults` are fact lines;
    `unexpected` are names of tensors. `total_bytes` is what all parameters take in the file,
    `packed_bytes` about what this process will keep of them.
    """

    parameters: list[ParameterSpec] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    total_bytes: int = 0
    packed_bytes: int = 0


def load_parameters(
    architecture: Architecture,
    checkpoint: Checkpoint,
    progress: Progress | None = None,
    available_bytes: int | None = None,
) -> None:
    """Pack all parameters of an architecture into its `weights`; of split ones, this rank's share.

    `progress` is told the bytes done after each parameter. Tensors that the architecture does
    not use are one warning, except those that it `ignored`.

    Raises ModelLoadError with the names of all tensors that are missing or of a wrong shape, and
    CapacityError where all together take more than `available_bytes`; nothing has been packed
    then.
    """
    plan = plan_load(architecture, checkpoint)
    if plan.faults:
        raise ModelLoadError(
            f"the tensors do not fit the config (in {checkpoint.path})",
            *plan.faults,
            *(f"unexpected: {name}" for name in plan.unexpected),
        )
    if plan.unexpected:
        _warn_of_unexpected(checkpoint, plan.unexpected)
    if available_bytes is not None:
        check_weights_fit(plan.packed_bytes, plan.total_bytes, available_bytes)
    done_bytes = 0
    for spec in plan.parameters:
        # blocks are asked for again, not kept: a format that copies holds one parameter at a time
        blocks = [checkpoint.blocks(source) for source in spec.sources]
        shares = [share_of_blocks(block, spec.split, architecture.ops) for block in blocks]
        architecture.weights[spec.name] = _pack(architecture.ops, spec, shares)
        done_bytes += sum(block.num_bytes for block in blocks)
        if progress is not None:
            progress("loading weights", done_bytes, plan.total_bytes)


def plan_load(architecture: Architecture, checkpoint: Checkpoint) -> LoadPlan:
    """Compare what an architecture wants with what a checkpoint holds; packs nothing."""
    plan = LoadPlan()
    names = checkpoint.names()
    present, wanted = set(names), set[str]()
    for spec in architecture.parameters():
        wanted.update(spec.sources)
        if spec.is_optional and present.isdisjoint(spec.sources):
            continue
        plan.parameters.append(spec)
        for source, shape in zip(spec.sources, spec.shapes, strict=True):
            if source not in present:
                plan.faults.append(f"missing: {source}")
                continue
            block = checkpoint.blocks(source)
            plan.total_bytes += block.num_bytes
            plan.packed_bytes += _packed_bytes(block, spec, architecture.ops)
            if block.shape != shape:
                plan.faults.append(f"{source} is {list(block.shape)}, not {list(shape)}")
    plan.unexpected = [
        name
        for name in names
        if name not in wanted and not any(fnmatchcase(name, p) for p in architecture.ignored)
    ]
    return plan


def _packed_bytes(block: WeightBlocks, spec: ParameterSpec, ops: OpSet) -> int:
    """Return about what this rank keeps of a tensor."""
    size = block.num_bytes
    if ops.bytes_per_weight is not None:
        size = ops.bytes_per_weight * math.prod(block.shape)
    return size if ops.collective is None or spec.split == "none" else size // ops.collective.size


def _pack(ops: OpSet, spec: ParameterSpec, blocks: Sequence[WeightBlocks]) -> Any:
    match spec.kind:
        case "linear":
            return ops.pack_linear(blocks)
        case "embedding":
            return ops.pack_embedding(blocks[0])
        case "vector":
            vector = ops.pack_vector(blocks)
            if not vector.isfinite().all():
                raise not_finite(blocks)
            return vector + spec.offset if spec.offset else vector


def _warn_of_unexpected(checkpoint: Checkpoint, names: list[str]) -> None:
    more = len(names) - NAMED_IN_WARNING
    logger.warning(
        "%d tensors are not used by this architecture (in %s): %s%s",
        len(names),
        checkpoint.path,
        ", ".join(names[:NAMED_IN_WARNING]),
        f" and {more} more" if more > 0 else "",
    )
