"""The promises of weight formats: W1 to W6, on the suite's sample.

`sample`: the path of a checkpoint in this format, of a few megabytes at most: it is read whole.

Knows configs, names and blocks. Does not know any format.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ModelLoadError
from octavo.interfaces.weights import BLOCK_TYPES, Checkpoint, WeightsFormat
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.samples import path_of_sample
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.testing.subjects import Subject

promises = Promises("weights", WeightsFormat)

_WHAT = "the path of a small checkpoint in this format"
_KEYS = ("architectures", "vocab_size", "rope_parameters", "rope_theta", "rope_scaling")


def _path(subject: Subject) -> Path:
    return path_of_sample(subject, _WHAT)


def _format(subject: Subject) -> WeightsFormat:
    made: WeightsFormat = subject.build()
    return made


@promises.keeps("W1")
def the_config_speaks_hugging_faces_language(subject: Subject) -> None:
    """With the keys that are always there; and the description is the checkpoint's."""
    checkpoint = _format(subject).open(_path(subject))
    missing = [key for key in _KEYS if key not in checkpoint.config]
    if missing:
        raise PromiseBroken(f"the config lacks {', '.join(missing)}: it has {[*checkpoint.config]}")
    described = _format(subject).open_config(_path(subject))
    if dict(described.config) != dict(checkpoint.config):
        raise PromiseBroken("open_config gives another config than open")
    if dict(described.generation_config) != dict(checkpoint.generation_config):
        raise PromiseBroken("open_config gives another generation_config than open")


@promises.keeps("W2")
def every_name_can_be_read(subject: Subject) -> None:
    """As blocks of their shape and type; another name is a typed error that names it."""
    checkpoint = _format(subject).open(_path(subject))
    names = checkpoint.names()
    if not names or len(set(names)) != len(names):
        raise PromiseBroken(f"{len(names)} names, of which {len(set(names))} are different")
    for name in names:
        blocks = checkpoint.blocks(name)
        layout = BLOCK_TYPES.get(blocks.block_type)
        if layout is None:
            raise PromiseBroken(f"{name} has the block type {blocks.block_type}")
        wanted = (math.prod(blocks.shape[:-1]), layout.row_bytes(blocks.columns))
        if blocks.name != name or blocks.data.shape != wanted or str(blocks.data.dtype) != "uint8":
            raise PromiseBroken(f"{name} {blocks.shape} has data {blocks.data.shape}, not {wanted}")
    try:
        checkpoint.blocks("no.such.weight")
    except ModelLoadError as error:
        if "no.such.weight" not in str(error):
            raise PromiseBroken(f"the error does not name the tensor: {error}") from error
    else:
        raise PromiseBroken("a tensor that is not there is read")


@promises.keeps("W3")
def no_stray_file_is_read(subject: Subject) -> None:
    """What lies beside a checkpoint changes nothing."""
    with _copy(_path(subject)) as path:
        before = _content(_format(subject).open(path))
        folder = path if path.is_dir() else path.parent
        (folder / "stray.bin").write_bytes(b"no weights")
        (folder / "notes.txt").write_text("nor these")
        after = _content(_format(subject).open(path))
    if before != after:
        raise PromiseBroken("with other files beside it the checkpoint has other content")


@promises.keeps("W4")
def a_damaged_file_is_an_error_when_opened(subject: Subject) -> str | None:
    """One that was cut off anywhere, or is empty."""
    path = _path(subject)
    largest = max(_files(path), key=lambda one: one.stat().st_size)
    if largest.suffix == ".json":
        return "it reads no weights from files"
    size = largest.stat().st_size
    for keep in (0, 7, 100, size // 2, size - 1):
        with _copy(path) as copied:
            victim = copied / largest.relative_to(path) if path.is_dir() else copied
            with victim.open("r+b") as file:
                file.truncate(keep)
            try:
                checkpoint = _format(subject).open(copied)
            except ModelLoadError:
                continue
            checkpoint.close()
            raise PromiseBroken(f"{largest.name} was cut to {keep} of {size} bytes, and is opened")
    return None


@promises.keeps("W5")
def blocks_stay_valid_after_closing(subject: Subject) -> None:
    """And closing twice is fine."""
    checkpoint = _format(subject).open(_path(subject))
    blocks = [checkpoint.blocks(name) for name in checkpoint.names()[:3]]
    before = [one.data.tobytes() for one in blocks]
    checkpoint.close()
    checkpoint.close()
    if [one.data.tobytes() for one in blocks] != before:
        raise PromiseBroken("blocks changed when their checkpoint was closed")


@promises.keeps("W6")
def a_path_without_one_is_told_and_refused(subject: Subject) -> str:
    """`why_not` has reasons, none for the sample, and `open` raises the typed error."""
    made = _format(subject)
    if made.why_not(_path(subject)) and not subject.offers("by-name-only"):
        raise PromiseBroken(
            f"why_not has reasons against the sample: {made.why_not(_path(subject))}"
        )
    nowhere = _path(subject).parent / "there is no such path"
    if not made.why_not(nowhere):
        raise PromiseBroken("why_not has no reason against a path that does not exist")
    headlines = []
    for opening in (made.open, made.open_config):
        try:
            opening(nowhere)
        except ModelLoadError as error:
            headlines.append(error.headline)
        else:
            raise PromiseBroken(f"{opening.__name__} opens a path that does not exist")
    return headlines[0]


def _content(checkpoint: Checkpoint) -> list[tuple[str, bytes]]:
    content = [(name, checkpoint.blocks(name).data.tobytes()) for name in checkpoint.names()]
    checkpoint.close()
    return content


def _files(path: Path) -> Iterator[Path]:
    yield from (one for one in path.rglob("*") if one.is_file()) if path.is_dir() else (path,)


class _copy:  # noqa: N801 - used as a function
    """A copy of a file or folder, for the length of a block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> Path:
        target = Path(self._folder.name) / self._path.name
        if self._path.is_dir():
            shutil.copytree(self._path, target)
        else:
            shutil.copy(self._path, target)
        return target

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


class WeightsSuite(Suite, promises=promises):
    """The tests of a weights format, on the sample that it opens."""
