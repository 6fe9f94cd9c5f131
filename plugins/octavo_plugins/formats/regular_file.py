"""Opens files that are what a model or an adapter is made of, and nothing else.

A FIFO waits for a writer, a device may never end: whoever opens one in good faith hangs. What a
link leads to counts. Knows paths and kinds of files. Does not know what is in them.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, without waiting. Raises OSError, also for what is no plain file."""
    _refuse_other_kinds(path.stat().st_mode)  # opening a device may do something
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_other_kinds(os.fstat(descriptor).st_mode)  # it may be another one by now
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return what is in a file. Raises OSError as `open_regular`, and for more than `max_bytes`."""
    with open_regular(path) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if num_bytes <= max_bytes else b""
    if num_bytes > max_bytes or len(content) > max_bytes:
        size = max(num_bytes, len(content))
        raise OSError(errno.EFBIG, f"it has {size} bytes, and may have {max_bytes} at most")
    return content


def _refuse_other_kinds(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
    raise OSError(errno.EINVAL, f"it is {kind}, not a file")
