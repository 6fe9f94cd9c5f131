"""Where compiled kernels are kept: `octavo/kernels` in the user's cache.

What is in there is loaded into the process, so that nobody else may be able to write to it.
Knows folders, locks and leftovers. Does not know what is compiled, or how.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# As many libraries as are kept: one for each state of the sources, flags, compiler and CPU.
KEPT_LIBRARIES: Final = 16
_BUILDING: Final = ".building-"
# What a library's bytes hash to stands behind them, where loaders do not look.
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


class CacheUnusableError(OSError):
    """The cache's folder cannot be trusted, or cannot be found."""


def cache_folder() -> Path:
    """Return the folder, made if need be, that only its owner can write to.

    Raises OSError if it cannot be made, CacheUnusableError if others could write to it.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # no home
        raise CacheUnusableError(str(error)) from error
    folder = base / "octavo" / "kernels"
    base.mkdir(parents=True, exist_ok=True)
    for part in (folder.parent, folder):
        part.mkdir(mode=0o700, exist_ok=True)
        _refuse_strangers(part)
    return folder


def _refuse_strangers(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise CacheUnusableError(f"'{folder}' is not a folder")
    if status.st_uid != os.geteuid():
        raise CacheUnusableError(f"'{folder}' belongs to another user (id {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheUnusableError(
            f"'{folder}' can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
        )


@contextlib.contextmanager
def locked(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Be the only process that builds in a folder; tell, and wait for the one that does."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # the system ends it with the process
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """Give a folder to build in, removed at the end; only with the lock held.

    What a killed build left is removed first.
    """
    for leftover in folder.glob(f"{_BUILDING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=folder) as name:
        try:
            yield Path(name)
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            # a write that failed does not say where
            raise OSError(error.errno, error.strerror, str(folder)) from error


def keep(made: Path, path: Path) -> None:
    """Move a library to its place, whole or not at all, also when the machine stops."""
    with made.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(0, os.SEEK_END)
        file.write(digest)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    libraries = sorted(path.parent.glob("*.so"), key=_age, reverse=True)
    for old in libraries[KEPT_LIBRARIES:]:
        old.unlink(missing_ok=True)


def find(folder: Path, pattern: str) -> Path | None:
    """Return the newest whole library whose name fits, marked as used."""
    for path in sorted(folder.glob(pattern), key=_age, reverse=True):
        if is_whole(path):
            with contextlib.suppress(OSError):  # read only: it cannot be removed either
                os.utime(path)
            return path
    return None


def is_whole(path: Path) -> bool:
    """Return whether a library is what was kept: one that is cut or damaged may do anything."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    library, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return hashlib.sha256(library).digest() == digest


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it meanwhile
        return 0.0
