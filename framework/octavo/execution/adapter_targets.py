"""Which checkpoint tensors adapters may change, and where each lies in a packed weight.

Several checkpoint tensors may be one packed weight (queries, keys and values; gate and up), so
that a change of one of them is a change of some outputs of that weight. With a model that is
split between ranks, each packs its own share of a change.

Knows parameters and shapes. Does not know files, requests, or how an op set packs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from octavo.adapter_faults import TensorFault, fault_lines
from octavo.errors import AdapterError, ModelLoadError, did_you_mean
from octavo.execution.sharding import share_of_range
from octavo.interfaces.ops import AdapterPart, OpSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.interfaces.adapter import AdapterWeights, LowRank
    from octavo.interfaces.architecture import Architecture, ParameterSpec

#: the weight that logits are made with: its inputs are rows of logits, not tokens of the step
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class _Target:
    """A checkpoint tensor [out, in] in the parameter `spec`, after `first` outputs of others.

    `first` and the rows that are kept are this rank's; `shape` is the whole tensor's.
    """

    spec: ParameterSpec
    shape: tuple[int, ...]
    first: int


class AdapterTargets:
    """The tensors of one loaded model that adapters may change."""

    def __init__(self, architecture: Architecture) -> None:
        self._ops = architecture.ops
        self._targets: dict[str, _Target] = {}
        self._others: dict[str, str] = {HEAD: "the head cannot be adapted"}
        for spec in architecture.parameters():
            if spec.kind != "linear" or spec.name not in architecture.weights:
                reason = "only linear layers can be adapted"
                self._others.update(dict.fromkeys(spec.sources, reason))
            elif HEAD not in spec.sources:
                self._add(spec)

    @property
    def names(self) -> set[str]:
        """Return the names of the parameters that adapters can change."""
        return {target.spec.name for target in self._targets.values()}

    def check_ops(self) -> None:
        """Raise AdapterError when the op set cannot apply adapters at all."""
        if type(self._ops).adapt is OpSet.adapt:
            raise AdapterError(
                f"the op set {type(self._ops).__name__} cannot apply adapters",
                "choose another: --ops",
                param="lora_request",
            )

    def _add(self, spec: ParameterSpec) -> None:
        first = 0
        for source, shape in zip(spec.sources, spec.shapes, strict=True):
            self._targets[source] = _Target(spec, shape, first)
            start, stop = self._share(shape[0], source, is_split=spec.split == "rows")
            first += stop - start

    def pack(self, weights: AdapterWeights, max_rank: int) -> dict[str, Any]:
        """Return an adapter's packed parts by the name of the parameter that each changes.

        Raises AdapterError with every tensor that the model has not, or has of another shape.
        """
        self._check(weights.deltas, max_rank)
        parts: dict[str, list[AdapterPart]] = {}
        for source, delta in weights.deltas.items():
            target = self._targets[source]
            parts.setdefault(target.spec.name, []).append(self._part(source, target, delta))
        return {
            name: self._ops.pack_adapter(sorted(some, key=lambda part: part.first))
            for name, some in parts.items()
        }

    def _check(self, deltas: Mapping[str, LowRank], max_rank: int) -> None:
        faults: list[TensorFault] = []
        for source, delta in deltas.items():
            target, rank = self._targets.get(source), len(delta.a)
            changed = (len(delta.b), delta.a.shape[1])
            if target is None:
                faults.append(self._why_not(source))
            elif changed != target.shape:
                text = f"it is {list(target.shape)}, the change is {list(changed)}"
                faults.append(TensorFault(source, text))
            elif rank > max_rank:
                text = f"rank {rank} is more than max-lora-rank, {max_rank}"
                faults.append(TensorFault(source, text))
        if faults:
            raise AdapterError("this adapter does not fit the model", *fault_lines(faults))

    def _why_not(self, source: str) -> TensorFault:
        known = self._others.get(source)
        if known is not None:
            return TensorFault(source, known)
        hint = did_you_mean(source, self._targets)
        return TensorFault(source, "the model has no such tensor", hint)

    def _part(self, source: str, target: _Target, delta: LowRank) -> AdapterPart:
        split = target.spec.split
        rows = slice(*self._share(target.shape[0], source, is_split=split == "rows"))
        columns = slice(*self._share(target.shape[1], source, is_split=split == "columns"))
        scaled = torch.from_numpy(delta.b[rows]) * delta.factor
        return AdapterPart(torch.from_numpy(delta.a[:, columns]), scaled, target.first)

    def _share(self, length: int, source: str, *, is_split: bool) -> tuple[int, int]:
        """Return where this rank's share of a dimension starts and stops."""
        collective = self._ops.collective
        if not is_split or collective is None:
            return 0, length
        try:
            return share_of_range(length, collective, source)
        except ModelLoadError as error:  # loading the model would have failed before
            raise AssertionError(str(error)) from error
