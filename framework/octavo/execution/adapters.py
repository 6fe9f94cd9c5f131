"""The adapters of a model's rows: which tokens of a step are changed by which of them.

    prepare   (any thread)       files -> checked, packed and in memory           -> digest
    start     (steps' thread)    a row's adapters are pinned, and become parts of the model
    fill      (steps' thread)    tokens of the step -> segments, one for each adapter
    end       (steps' thread)    unpinned: may be evicted

Knows rows, tokens and the model's parts. Does not know files (`adapter_memory`), layers, or how
parts are multiplied.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.errors import AdapterError
from octavo.execution.adapter_memory import AdapterLimits, AdapterMemory
from octavo.execution.adapter_targets import AdapterTargets
from octavo.execution.adapting import AdaptingOps
from octavo.interfaces.ops import AdapterBatch, AdapterParts, AdapterSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.plan import RowAdvance
    from octavo.execution.adapter_memory import ResidentAdapter
    from octavo.execution.batching import FlatBatch
    from octavo.interfaces.adapter import AdapterFormat, AdapterSpec, AdapterUse
    from octavo.interfaces.architecture import Architecture


class AdapterStore:
    """The adapters of one loaded model."""

    def __init__(
        self,
        architecture: Architecture,
        formats: Sequence[AdapterFormat],
        limits: AdapterLimits,
    ) -> None:
        self._architecture = architecture
        self._targets = AdapterTargets(architecture)
        self._memory = AdapterMemory(self._targets, formats, limits)
        #: called when adapters come to the model or leave it: what was recorded before holds those
        #: that it had then
        self.on_change: Callable[[], None] = lambda: None
        self._free_slots: list[int] = []
        self._num_slots = 0
        self._batch = AdapterBatch()
        self._parts: dict[str, AdapterParts] = {}
        self._rows: dict[int, list[tuple[ResidentAdapter, float]]] = {}
        self._failed: dict[int, str] = {}

    @classmethod
    def of(cls, config: ResolvedConfig, architecture: Architecture) -> AdapterStore | None:
        """Return the store of a loaded model, if adapters are not switched off."""
        settings = config.engine
        if not settings.enable_lora:
            return None
        limits = AdapterLimits(settings.max_loras, settings.max_lora_rank)
        return cls(architecture, tuple(config.build_all("adapter").values()), limits)

    def prepare(self, spec: AdapterSpec) -> Future[str]:
        """Make an adapter ready, as `Executor.prepare`."""
        return self._memory.prepare(spec)

    def discard(self, spec: AdapterSpec) -> None:
        """Forget an adapter as soon as no row uses it."""
        self._memory.discard(spec)

    def close(self) -> None:
        """End what reads files; twice is fine."""
        self._memory.close()

    def start(self, row: int, uses: Sequence[AdapterUse]) -> None:
        """Give a row its adapters. One that is not to be had fails the row's next step."""
        if not uses:
            return
        scales: dict[str, float] = {}
        specs: dict[str, AdapterSpec] = {}
        for use in uses:  # two names may stand for the same content
            scales[use.digest] = scales.get(use.digest, 0.0) + use.scale
            specs[use.digest] = use.spec
        pinned = self._rows[row] = []
        try:
            for digest, scale in scales.items():
                resident = self._memory.pin(specs[digest], digest)
                pinned.append((resident, scale))
                self._install(resident)
        except AdapterError as error:
            self._failed[row] = str(error)

    def end(self, row: int) -> None:
        """Take a row's adapters away."""
        pinned = self._rows.pop(row, None)
        if pinned is not None:
            self._failed.pop(row, None)
            self._memory.unpin([resident for resident, _ in pinned])

    def fill(self, batch: FlatBatch, advances: Sequence[RowAdvance]) -> dict[int, str]:
        """Say which tokens of a step are changed by which adapters.

        Returns by index of the advance why it must fail: an adapter of its row is not there.
        """
        self._remove_evicted()
        if not self._rows:
            self._batch.segments = []
            return {}
        shares: dict[str, _Shares] = {}
        failed: dict[int, str] = {}
        for index, advance in enumerate(advances):
            if advance.row in self._failed:
                failed[index] = self._failed[advance.row]
            for resident, scale in self._rows.get(advance.row, ()):
                if scale:
                    mine = shares.setdefault(resident.digest, _Shares(resident))
                    mine.add(batch.query_start[index], batch.query_start[index + 1], scale)
        # in the order of digests, so that a blend is summed in one order whoever else is there
        self._batch.segments = [shares[digest].segment() for digest in sorted(shares)]
        return failed

    def _install(self, resident: ResidentAdapter) -> None:
        """Put an adapter among the model's parts, and the adapting ops around the model's own."""
        if resident.slot is not None:
            return
        architecture = self._architecture
        if not self._parts:
            self._parts = {name: AdapterParts() for name in self._targets.names}
            by_weight = {
                id(architecture.weights[name]): parts for name, parts in self._parts.items()
            }
            architecture.ops = AdaptingOps(architecture.ops, by_weight, self._batch)
        resident.slot = self._take_slot()
        for name, packed in resident.packed.items():
            self._parts[name].by_slot[resident.slot] = packed
        self.on_change()

    def _take_slot(self) -> int:
        """Return the lowest number that no adapter has: op sets keep tables by it."""
        if self._free_slots:
            return heapq.heappop(self._free_slots)
        self._num_slots += 1
        return self._num_slots - 1

    def _remove_evicted(self) -> None:
        for resident in self._memory.take_evicted():
            slot = resident.slot
            if slot is None:
                continue
            for name in resident.packed:
                del self._parts[name].by_slot[slot]
            heapq.heappush(self._free_slots, slot)
            self.on_change()


class _Shares:
    """The tokens of a step that one adapter changes, in rising order."""

    def __init__(self, resident: ResidentAdapter) -> None:
        self._slot = resident.slot
        self._tokens: list[np.ndarray] = []
        self._scales: list[np.ndarray] = []

    def add(self, start: int, stop: int, scale: float) -> None:
        """Add the tokens start .. stop."""
        self._tokens.append(np.arange(start, stop))
        self._scales.append(np.full(stop - start, scale, dtype=np.float32))

    def segment(self) -> AdapterSegment:
        """Return all of them."""
        assert self._slot is not None  # noqa: S101 - rows hold installed adapters only
        tokens = np.concatenate(self._tokens)
        first, last = int(tokens[0]), int(tokens[-1])
        return AdapterSegment(
            self._slot,
            torch.from_numpy(tokens),
            torch.from_numpy(np.concatenate(self._scales)[:, None]),
            first if last - first + 1 == len(tokens) else None,
        )
