"""Memory in huge pages: aligned, empty, and not more of it than was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo_kernels.cpu.memory import Arena, huge_bytes

MIB = 2**20


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    pytest.skip("the kernel does not say what is resident")


@pytest.mark.parametrize("size", [1, MIB, 2 * MIB, 5 * MIB + 3])
def test_it_begins_at_a_huge_page_and_is_zero(size):
    memory = huge_bytes(size)
    assert memory.shape == (size,)
    assert memory.ctypes.data % (2 * MIB) == 0
    assert not memory.any()


def test_small_caches_take_what_is_touched_and_not_a_huge_page_each():
    before = resident_bytes()
    caches = [huge_bytes(MIB + 4096) for _ in range(40)]
    for cache in caches:
        cache[0] = 1
    assert resident_bytes() - before < 8 * MIB


def test_pieces_of_an_arena_begin_at_cache_lines_and_do_not_overlap():
    arena = Arena(1024)
    pieces = [arena.take(100), arena.take(1), arena.take(5000), arena.take(64)]
    for number, piece in enumerate(pieces):
        assert piece.ctypes.data % 64 == 0
        piece[:] = number
    assert [set(piece.tolist()) for piece in pieces] == [{0}, {1}, {2}, {3}]
