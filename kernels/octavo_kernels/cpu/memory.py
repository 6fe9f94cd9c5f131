"""Memory for what kernels read again and again: weights and caches, in huge pages where there are.

With pages of 4 KiB, looking up where a page lies costs more than reading it does, above all on
virtual machines: a step of a 135M model at one row took 6.5 ms with them, and 3.9 ms with pages of
2 MiB. Knows bytes. Does not know what they hold.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CACHE_LINE_BYTES: Final = 64
_HUGE_PAGE_BYTES: Final = 2 << 20
#: what is asked of the system at once; pages that nothing touches take no memory
_CHUNK_BYTES: Final = 64 << 20


def huge_bytes(size: int) -> NDArray[np.uint8]:
    """Return uint8 [size], all zero, that begins at a huge page. It is freed with the array.

    Raises MemoryError where the system refuses.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        memory = mmap.mmap(-1, size + _HUGE_PAGE_BYTES, flags=flags)
    except OSError as error:
        raise MemoryError(f"the system refuses {size / 2**20:.1f} MiB: {error.strerror}") from error
    everything = np.frombuffer(memory, dtype=np.uint8)
    start = -everything.ctypes.data % _HUGE_PAGE_BYTES
    # of whole huge pages only: one that is asked for in part takes memory in whole
    whole_bytes = size // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    if whole_bytes and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE, start, whole_bytes)
    return everything[start : start + size]


class Arena:
    """Hands out pieces of large allocations, which live for as long as any of their pieces."""

    def __init__(self, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._rest = np.empty(0, dtype=np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return uint8 [size], all zero, that begins at a cache line."""
        taken = -(-size // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        if taken > len(self._rest):
            self._rest = huge_bytes(max(taken, self._chunk_bytes))
        piece = self._rest[:size]
        self._rest = self._rest[taken:]
        return piece
