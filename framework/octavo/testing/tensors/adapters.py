"""The promises of adapter formats: R1 to R7, on folders that the suite's sample names.

`sample`: an `AdapterSample`, or a mapping {"good": PATH, "bad": [PATH, ...]}. Good adapters are
small: they are copied, cut and overwritten.

Knows folders, files and factors. Does not know any format.
"""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import AdapterError
from octavo.interfaces.adapter import AdapterFormat, AdapterWeights, LowRank
from octavo.testing.invariants import PromiseBroken, Promises, SampleNeededError
from octavo.testing.light_imports import require_light
from octavo.testing.samples import sample_of
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from octavo.testing.subjects import Subject

promises = Promises("adapter", AdapterFormat)

_WHAT = "folders as {good: PATH, bad: [PATH, ...]}, or an AdapterSample"
#: of the largest number of a change: float32 factors, multiplied in float64
_TOLERANCE = 1e-5
_MATRIX = 2
_THREADS = 4
_PICKLES = (".bin", ".pt", ".pth", ".pkl")


@dataclass(frozen=True, slots=True)
class GoodAdapter:
    """A folder, and where it is known what each tensor is changed by: [out, in], in float64."""

    path: Path
    changes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AdapterSample:
    """What a format reads, and what it has to refuse: by what is wrong with each."""

    good: Sequence[GoodAdapter]
    bad: Mapping[str, Path] = field(default_factory=dict)


def _bomb(marker: Path) -> bytes:
    """Return a pickle, written by hand: whoever loads it makes a folder."""
    return b"cos\nmkdir\n(V" + str(marker).encode("raw_unicode_escape") + b"\ntR."


def _sample(subject: Subject) -> AdapterSample:
    """Return the sample as what it stands for. Raises SampleNeededError."""
    given = sample_of(subject, _WHAT)
    if isinstance(given, AdapterSample):
        return given
    if not isinstance(given, dict) or "good" not in given:
        raise SampleNeededError(f"the sample of adapter '{subject.name}' is not {_WHAT}")
    bad = {str(path): Path(path) for path in given.get("bad", ())}
    return AdapterSample([GoodAdapter(Path(given["good"]))], bad)


def _format(subject: Subject) -> AdapterFormat:
    made: AdapterFormat = subject.build()
    return made


@promises.keeps("R1")
def what_it_cannot_do_is_refused(subject: Subject) -> str | None:
    """All bad folders of the sample, each for what is wrong with it."""
    told = []
    for what, path in _sample(subject).bad.items():
        error = _refusal(subject, path)
        if error is None:
            raise PromiseBroken(f"an adapter with {what} is read")
        told.append(str(error))
    return told[0] if told else None


def _refusal(subject: Subject, path: Path) -> AdapterError | None:
    """Return why a folder is not read; None when it is. Other errors go on."""
    try:
        _format(subject).read(path)
    except AdapterError as error:
        return error
    return None


@promises.keeps("R2")
def what_was_read_does_not_change(subject: Subject) -> None:
    """In several threads at once the same; and whatever becomes of the files."""
    for good in _sample(subject).good:
        with _copy(good.path) as folder:
            made = _format(subject)
            with ThreadPoolExecutor(_THREADS) as threads:
                read = list(threads.map(made.read, [folder] * _THREADS))
            before = [_content(one) for one in read]
            for file in _files(folder):
                size = file.stat().st_size
                with file.open("r+b") as stream:
                    stream.write(b"\x07" * size)
            if any(one != before[0] for one in before):
                raise PromiseBroken("threads that read the same folder have other changes")
            if _content(read[0]) != before[0]:
                raise PromiseBroken("what was read changes with the files")


@promises.keeps("R3")
def its_target_is_light(subject: Subject) -> None:
    """Imported in a process of its own."""
    require_light(subject)


@promises.keeps("R4")
def nothing_in_a_file_is_run(subject: Subject) -> str | None:
    """A pickle in the place of each file, under its name and under those of pickles."""
    told = []
    for file in _files(_sample(subject).good[0].path):
        name = file.relative_to(_sample(subject).good[0].path)
        for suffix in (file.suffix, *_PICKLES):
            with _copy(_sample(subject).good[0].path) as folder:
                marker = folder.parent / "was run"
                (folder / name).unlink()
                victim = (folder / name).with_suffix(suffix)
                victim.write_bytes(_bomb(marker))
                error = _refusal(subject, folder)
                if marker.exists():
                    raise PromiseBroken(f"{victim.name} held a pickle, and it was run")
                if error is None:
                    raise PromiseBroken(f"with a pickle for {name} the adapter is read")
                told.append(error.headline)
    return told[-1] if told else None


@promises.keeps("R5")
def changes_are_those_that_were_written(subject: Subject) -> None:
    """As matrices of float32, whose product in float64 is what the sample says."""
    for good in _sample(subject).good:
        read = _format(subject).read(good.path)
        if not read.deltas:
            raise PromiseBroken(f"{good.path.name} changes nothing")
        for name, delta in read.deltas.items():
            _require_matrices(name, delta)
        if good.changes is None:
            continue
        if set(good.changes) != set(read.deltas):
            other = min(set(good.changes) ^ set(read.deltas))
            raise PromiseBroken(f"{good.path.name}: {other} is changed, or is not, as it should")
        for name, wanted in good.changes.items():
            delta = read.deltas[name]
            got = delta.factor * (delta.b.astype(np.float64) @ delta.a.astype(np.float64))
            error = float(np.abs(got - wanted).max())
            limit = _TOLERANCE * max(float(np.abs(wanted).max()), 1e-3)
            if not error <= limit:
                raise PromiseBroken(
                    f"{good.path.name}: the change of {name} is off by {error:.2g}, of "
                    f"{limit:.2g} at most"
                )


def _require_matrices(name: str, delta: LowRank) -> None:
    for side, matrix in (("a", delta.a), ("b", delta.b)):
        if matrix.dtype != np.float32 or matrix.ndim != _MATRIX:
            raise PromiseBroken(f"{name}: {side} is {matrix.dtype} {matrix.shape}")
        if not np.isfinite(matrix).all():
            raise PromiseBroken(f"{name}: {side} holds what is no number")
    if delta.a.shape[0] != delta.b.shape[1] or not np.isfinite(delta.factor):
        raise PromiseBroken(f"{name}: {delta.b.shape} and {delta.a.shape} do not fit")


@promises.keeps("R6")
def a_path_without_one_is_told_and_refused(subject: Subject) -> str:
    """One that does not exist, and an empty folder; the sample is neither."""
    made = _format(subject)
    for good in _sample(subject).good:
        reasons = made.why_not(good.path)
        if reasons:
            raise PromiseBroken(f"why_not has reasons against the sample: {reasons}")
        made.check(good.path)
    told = ""
    with tempfile.TemporaryDirectory() as name:
        for path in (Path(name), Path(name) / "there is no such path"):
            if not made.why_not(path):
                raise PromiseBroken(f"why_not has no reason against {path}")
            error = _refusal(subject, path)
            if error is None:
                raise PromiseBroken(f"{path} is read, which holds no adapter")
            if str(path) not in str(error):
                raise PromiseBroken(f"the error does not name the path: {error}")
            told = error.headline
    return told


@promises.keeps("R6")
def a_damaged_file_is_refused(subject: Subject) -> str | None:
    """Cut anywhere, or full of something else; the error names it."""
    told = []
    for name, damaged in _damaged(_sample(subject).good[0].path):
        error = _refusal(subject, damaged)
        if error is None:
            if _same_changes(subject, damaged, _sample(subject).good[0].path):
                continue  # what was cut off meant nothing
            raise PromiseBroken(f"{name} is damaged, and the adapter is read")
        if name not in str(error):
            raise PromiseBroken(f"{name} is damaged, and the error does not name it: {error}")
        told.append(error.headline)
    return told[0] if told else None


@promises.keeps("R6")
def what_is_found_at_once_is_refused_later(subject: Subject) -> None:
    """`check` raises nothing else, and refuses nothing that `read` takes."""
    paths = [*_sample(subject).bad.values(), *(good.path for good in _sample(subject).good)]
    for path in paths:
        try:
            _format(subject).check(path)
        except AdapterError as error:
            if _refusal(subject, path) is None:
                raise PromiseBroken(f"check refuses {path.name}, which is read: {error}") from error


def _damaged(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield copies of a folder in each of which one file is damaged, with the file's name."""
    for file in _files(path):
        size = file.stat().st_size
        for kept in (0, 7, size // 2, size - 1, None):
            with _copy(path) as folder:
                victim = folder / file.relative_to(path)
                content = b"\xff" * size if kept is None else victim.read_bytes()[:kept]
                victim.write_bytes(content)
                yield file.name, folder


def _same_changes(subject: Subject, one: Path, other: Path) -> bool:
    return _changes(_format(subject).read(one)) == _changes(_format(subject).read(other))


@promises.keeps("R7")
def other_content_has_another_digest(subject: Subject) -> None:
    """And the same content the same, whoever reads it."""
    digests: dict[str, tuple[Any, ...]] = {}
    for good in _sample(subject).good:
        with _copy(good.path) as folder:
            read, again = _format(subject).read(folder), _format(subject).read(folder)
            if read.digest != again.digest or not read.digest:
                raise PromiseBroken(f"one folder has the digests {read.digest} and {again.digest}")
            changes = _changes(read)
            if digests.setdefault(read.digest, changes) != changes:
                raise PromiseBroken(f"{good.path.name} has the digest of another adapter")
            largest = max(_files(folder), key=lambda one: one.stat().st_size)
            content = bytearray(largest.read_bytes())
            content[-2] ^= 1
            largest.write_bytes(bytes(content))
            if _refusal(subject, folder) is None:
                changed = _format(subject).read(folder)
                if changed.digest == read.digest and _changes(changed) != changes:
                    raise PromiseBroken(f"with another number in {largest.name} the digest stays")


def _content(read: AdapterWeights) -> tuple[Any, ...]:
    return read.digest, *_changes(read)


def _changes(read: AdapterWeights) -> tuple[Any, ...]:
    return tuple(
        (name, delta.a.tobytes(), delta.b.tobytes(), delta.factor)
        for name, delta in sorted(read.deltas.items())
    )


def _files(path: Path) -> list[Path]:
    return sorted(one for one in path.rglob("*") if one.is_file())


@contextmanager
def _copy(path: Path) -> Iterator[Path]:
    """Give a copy of a folder, as long as the block lasts."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(shutil.copytree(path, Path(name) / path.name))


class AdapterSuite(Suite, promises=promises):
    """The tests of an adapter format, on folders that it reads and others that it must refuse."""
