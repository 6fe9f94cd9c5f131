"""Octavo's cache on disk: where it is, and how a file gets into it whole or not at all.

Knows folders and permissions. Does not know what is cached.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from octavo.errors import ConfigError


def cache_folder(name: str) -> Path:
    """Return the folder `name` of the cache, made if need be, readable by its owner only.

    Raises ConfigError if it cannot be made, or belongs to somebody else: what is in it is
    trusted.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "octavo" / name
    try:
        base.mkdir(parents=True, exist_ok=True)
        for part in (folder.parent, folder):
            part.mkdir(mode=0o700, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as error:
        raise ConfigError(
            f"cannot use the cache folder '{folder}'",
            f"{error.strerror or error}",
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from error
    if owner != os.geteuid():
        raise ConfigError(
            f"the cache folder '{folder}' belongs to another user (id {owner})",
            "set XDG_CACHE_HOME to a folder of your own",
        )
    return folder


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees all of it or nothing, also after a crash."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
