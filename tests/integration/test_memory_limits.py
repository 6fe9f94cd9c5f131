"""Under limits of memory a model works, or the arithmetic is told; nothing is ever killed.

Cgroups are tried where this user may make them, which is root outside of most containers.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 2**20
MEMORY = Path("/sys/fs/cgroup/memory")
UNIFIED = Path("/sys/fs/cgroup")
COMMAND = [sys.executable, "-m", "octavo", "complete", "smollm2", "--prompt", "hi"]
COMMAND += ["--max-tokens", "8", "--temperature", "0", "--ops", "cpu", "--attention", "cpu"]


def complete(limit: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limit,
    )


@pytest.fixture
def cgroup() -> Iterator[Callable[[int], Callable[[], None]]]:
    """Return what limits a cgroup of this test's to MiB, and returns how a process enters it."""
    is_v2 = (UNIFIED / "cgroup.controllers").exists()
    folder = (UNIFIED if is_v2 else MEMORY) / f"octavo-test-{os.getpid()}"
    file = folder / ("memory.max" if is_v2 else "memory.limit_in_bytes")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        if not file.exists():
            pytest.skip("the cgroup has no controller of memory")

        def limited(mib: int) -> Callable[[], None]:
            file.write_text(str(mib * MIB))
            return lambda: (folder / "cgroup.procs").write_text(str(os.getpid())) and None

        yield limited
    finally:
        for _ in range(50):  # the last process may still be leaving
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def limited_to(kind: int, mib: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (mib * MIB, mib * MIB))


def test_a_cgroup_of_1_gib_is_enough(cgroup):
    done = complete(cgroup(1024))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


@pytest.mark.parametrize("mib", [240, 280, 310, 340, 380])
def test_in_a_smaller_cgroup_it_works_or_tells_the_arithmetic(cgroup, mib):
    done = complete(cgroup(mib))
    if done.returncode == 0:
        assert done.stdout.strip()
    else:
        assert done.returncode > 0, "killed"
        assert "not fit into memory" in done.stderr
        assert "MiB (`octavo collect-env` says what limits it)" in done.stderr


@pytest.mark.parametrize(
    ("kind", "enough_mib", "few_mib"),
    [(resource.RLIMIT_AS, 2500, 1050), (resource.RLIMIT_DATA, 1500, 620)],
    ids=["ulimit -v", "ulimit -d"],
)
def test_a_limit_of_the_process_is_enough_or_told_with_the_arithmetic(kind, enough_mib, few_mib):
    done = complete(limited_to(kind, enough_mib))
    assert (done.returncode, done.stderr) == (0, "")
    done = complete(limited_to(kind, few_mib))
    assert done.returncode > 0
    assert "not fit into memory" in done.stderr
    assert "available: " in done.stderr
