"""A file mapped into memory, as an array of bytes.

Knows paths and bytes. Does not know what is in the file.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from octavo.errors import ModelLoadError
from octavo_plugins.formats.regular_file import open_regular

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def map_file(path: Path) -> NDArray[np.uint8]:
    """Map a whole file and return its bytes, uint8 [size].

    The mapping is private: pages are shared with the page cache until someone writes to them,
    and the file never changes. It is writable all the same, because torch wants its arrays so.
    It lives as long as any array that views it; the file itself is not held open.
    Raises ModelLoadError if the file is missing, empty, no plain file, or cannot be read.
    """
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelLoadError(f"'{path}' is empty (0 bytes)", "fetch or copy the file again")
            mapping = mmap.mmap(
                file.fileno(),
                0,
                # weights larger than the memory may be mapped: only what is read is loaded
                flags=mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0),
                prot=mmap.PROT_READ | mmap.PROT_WRITE,
            )
    except OSError as error:
        raise ModelLoadError(f"cannot open '{path}'", f"{error.strerror or error}") from error
    return np.frombuffer(mapping, dtype=np.uint8)
