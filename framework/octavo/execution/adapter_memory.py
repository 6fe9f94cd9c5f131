"""Adapters in memory: read and checked in a thread, kept by content, evicted when not in use.

An adapter is what its files hold when a request asks for it. It is known by a digest of that
content, which the request keeps: files that change are another adapter from then on, and a name
that is used again never mixes two contents.

Knows formats, digests and how many rows use an adapter. Does not know rows, tokens or layers.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from octavo.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.execution.adapter_targets import AdapterTargets
    from octavo.interfaces.adapter import AdapterFormat, AdapterSpec


#: a folder, and the one that its files may not lie outside of
_Place: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class AdapterLimits:
    """How many adapters stay in memory beside those that running rows use, and how large."""

    max_resident: int
    max_rank: int


@dataclass(slots=True)
class ResidentAdapter:
    """An adapter in memory. `packed` is by parameter; `num_pins` counts the rows that use it.

    One that `is_discarded` goes with the last of these. `slot` is its number among the model's
    parts, or None; it belongs to the thread of the steps.
    """

    digest: str
    packed: dict[str, Any]
    slot: int | None = None
    num_pins: int = 0
    is_discarded: bool = False


@dataclass(frozen=True, slots=True)
class _Reading:
    """The last reading of a path: what the folder looked like before, and what came of it."""

    signature: object
    digest: Future[str]


class AdapterMemory:
    """The adapters of one model that are in memory. All methods may be called from any thread."""

    def __init__(
        self, targets: AdapterTargets, formats: Sequence[AdapterFormat], limits: AdapterLimits
    ) -> None:
        self._targets = targets
        self._formats = tuple(formats)
        self._limits = limits
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._readings: dict[_Place, _Reading] = {}
        self._residents: OrderedDict[str, ResidentAdapter] = OrderedDict()  # oldest use first
        self._evicted: list[ResidentAdapter] = []

    def prepare(self, spec: AdapterSpec) -> Future[str]:
        """Read an adapter, unless the files are as they were when it was last read.

        The future yields the digest of its content, or raises AdapterError.
        """
        signature = _signature(spec.path)
        with self._lock:
            last = self._readings.get(_place(spec))
            if last is not None and last.signature == signature and self._is_good(last.digest):
                return last.digest
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "octavo-adapters")
            digest = self._pool.submit(lambda: self._load(spec).digest)
            self._readings[_place(spec)] = _Reading(signature, digest)
        return digest

    def discard(self, spec: AdapterSpec) -> None:
        """Forget what was read from a path, and its content as soon as no row uses it."""
        with self._lock:
            last = self._readings.pop(_place(spec), None)
            if last is None or not last.digest.done() or last.digest.exception() is not None:
                return
            resident = self._residents.get(last.digest.result())
            if resident is not None:
                resident.is_discarded = True
                self._let_go(resident)

    def pin(self, spec: AdapterSpec, digest: str) -> ResidentAdapter:
        """Return a prepared adapter, which stays until `unpin`.

        It was evicted if more adapters were asked for than are kept; then it is read again, here
        and now. Raises AdapterError when the files are others by now.
        """
        with self._lock:
            resident = self._residents.get(digest)
            if resident is not None:
                self._residents.move_to_end(digest)
                resident.num_pins += 1
                return resident
        resident = self._load(spec, is_pinned=True)
        if resident.digest == digest:
            return resident
        self.unpin([resident])
        raise AdapterError(
            f"the files of adapter '{spec.name}' changed while the request waited",
            f"folder: {spec.path}",
            "send the request again; a larger max-loras keeps more adapters in memory",
        )

    def unpin(self, residents: Sequence[ResidentAdapter]) -> None:
        """Let adapters go that were pinned."""
        with self._lock:
            for resident in residents:
                resident.num_pins -= 1
                self._let_go(resident)
            self._make_room()

    def take_evicted(self) -> list[ResidentAdapter]:
        """Return the adapters that have been evicted since the last call and have a slot."""
        if not self._evicted:
            return []
        with self._lock:
            evicted, self._evicted = self._evicted, []
        return evicted

    def close(self) -> None:
        """End the reader's thread; twice is fine."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _is_good(self, digest: Future[str]) -> bool:
        """Return whether a reading goes on, or its content is still there (then as just used)."""
        if not digest.done():
            return True
        if digest.cancelled() or digest.exception() is not None:
            return False
        if digest.result() not in self._residents:
            return False
        self._residents.move_to_end(digest.result())
        return True

    def _load(self, spec: AdapterSpec, *, is_pinned: bool = False) -> ResidentAdapter:
        """Read, check and pack. Raises AdapterError."""
        try:
            return self._read(spec, is_pinned=is_pinned)
        except AdapterError as error:
            where = f"adapter '{spec.name}' in '{spec.path}'"
            raise AdapterError(error.headline, *error.facts, where, param="lora_request") from error
        except Exception as error:
            raise AdapterError(
                f"the adapter in '{spec.path}' cannot be read", f"{type(error).__name__}: {error}"
            ) from error

    def _read(self, spec: AdapterSpec, *, is_pinned: bool) -> ResidentAdapter:
        self._targets.check_ops()
        _refuse_outside(spec)
        weights = self._format_of(spec).read(Path(spec.path))
        with self._lock:
            is_known = weights.digest in self._residents
        packed = {} if is_known else self._targets.pack(weights, self._limits.max_rank)
        with self._lock:
            resident = self._residents.setdefault(
                weights.digest, ResidentAdapter(weights.digest, packed)
            )
            self._residents.move_to_end(weights.digest)
            resident.num_pins += is_pinned
            resident.is_discarded = False
            self._make_room()
        return resident

    def _format_of(self, spec: AdapterSpec) -> AdapterFormat:
        path, reasons = Path(spec.path), []
        for one in self._formats:
            why_not = one.why_not(path)
            if not why_not:
                return one
            reasons += why_not
        raise AdapterError("there is no adapter", *dict.fromkeys(reasons))

    def _make_room(self) -> None:
        """Evict what no row uses, but for the newest, as far as there are too many."""
        idle = [one for one in list(self._residents.values())[:-1] if not one.num_pins]
        for resident in idle[: max(0, len(self._residents) - self._limits.max_resident)]:
            self._evict(resident)

    def _let_go(self, resident: ResidentAdapter) -> None:
        """Evict what was discarded, when no row uses it any more."""
        is_there = self._residents.get(resident.digest) is resident
        if resident.is_discarded and not resident.num_pins and is_there:
            self._evict(resident)

    def _evict(self, resident: ResidentAdapter) -> None:
        del self._residents[resident.digest]
        if resident.slot is not None:
            self._evicted.append(resident)


def _place(spec: AdapterSpec) -> _Place:
    return spec.path, spec.root


def _refuse_outside(spec: AdapterSpec) -> None:
    """Raise AdapterError if a link leads out of the folder that adapters may be loaded from.

    Links are followed as they are now: whoever writes into the folder may change them at any time.
    """
    if spec.root is None:
        return
    root, folder = Path(spec.root), Path(spec.path)
    links = (path for path in folder.rglob("*") if path.is_symlink())
    for path in (folder, *links):
        if not path.resolve().is_relative_to(root):
            raise AdapterError(
                f"'{path.name}' leads outside of the folder that adapters are loaded from",
                "put a copy of the file in its place",
            )


def _signature(path: str) -> object:
    """Return what changes when files of a folder do; None for a folder that cannot be listed."""
    try:
        with os.scandir(path) as entries:
            stats = [(entry.name, entry.stat()) for entry in entries]
    except OSError:
        return None
    return sorted(
        (name, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for name, one in stats
    )
