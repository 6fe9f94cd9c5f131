"""What this process may still take: of the machine, of its cgroups, of its own limits.

A limit of any group above a process holds for it too, so all of them are asked: a service of
systemd, or a container that sees its host's groups, has none at the root. Knows /proc,
/sys/fs/cgroup (v1 and v2) and resource limits. Does not know what memory is taken for.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_KIB = 1024
#: what version 1 says where there is no limit is about this, less a page
_UNLIMITED: Final = 1 << 60
#: what limits of address space must leave: stacks and heaps of threads, which are reserved in
#: whole and hardly used, and where mappings begin
_RESERVED_BYTES: Final = 256 << 20
_CORES = 2  # the words of "quota period"


class MemoryLimit(NamedTuple):
    """How many bytes may still be taken, and who says so."""

    available_bytes: int
    origin: str


def memory_limit() -> MemoryLimit:
    """Return the tightest limit there is now."""
    return min([_of_system(), *_of_cgroups(), *_of_process()])


def cpu_quota() -> int | None:
    """Return the whole cores of the tightest quota, rounded up; None if there is none."""
    quotas = []
    for group in _groups("cpu"):
        parts = read(group / "cpu.max").split()
        if len(parts) != _CORES:
            parts = [read(group / f"cpu.cfs_{one}_us").strip() for one in ("quota", "period")]
        if all(part.isdigit() for part in parts):  # neither "max" nor -1
            quotas.append(max(1, -(-int(parts[0]) // int(parts[1]))))
    return min(quotas, default=None)


def read(path: Path) -> str:
    """Return a small text of the kernel's; empty where there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _of_system() -> MemoryLimit:
    kib = _field(read(_PROC / "meminfo"), "MemAvailable:")
    if kib is None:
        return MemoryLimit(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "the machine")
    return MemoryLimit(kib * _KIB, "the machine")


def _of_cgroups() -> list[MemoryLimit]:
    """Return limit - use of each cgroup that has one; page cache is not counted as use."""
    limits = []
    for group in _groups("memory"):
        for limit_name, usage_name, cache_key in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, usage = read(group / limit_name).strip(), read(group / usage_name).strip()
            if limit.isdigit() and usage.isdigit() and int(limit) < _UNLIMITED:
                cached = _field(read(group / "memory.stat"), cache_key) or 0
                left = max(0, int(limit) - int(usage) + cached)
                limits.append(MemoryLimit(left, f"cgroup {group}"))
    return limits


def _of_process() -> list[MemoryLimit]:
    """Return what `ulimit -v` and `ulimit -d` leave of this process's address space."""
    limits = []
    status = read(_PROC / "self/status")
    for kind, key, command in (
        (resource.RLIMIT_AS, "VmSize:", "ulimit -v"),
        (resource.RLIMIT_DATA, "VmData:", "ulimit -d"),
    ):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            used = (_field(status, key) or 0) * _KIB + _RESERVED_BYTES
            limits.append(MemoryLimit(max(0, soft - used), command))
    return limits


def _groups(controller: str) -> list[Path]:
    """Return the folders of this process's cgroup and of all above it, of either version."""
    groups = [_CGROUP, _CGROUP / controller]
    for line in read(_PROC / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        parts = PurePosixPath(path).parts[1:]
        # a process outside of its namespace's root has no folder that it can see
        if ".." in parts or (controllers and controller not in controllers.split(",")):
            continue
        group = _CGROUP / controller if controllers else _CGROUP
        for part in parts:
            group /= part
            groups.append(group)
    return groups


def _field(text: str, key: str) -> int | None:
    """Return the number behind a key, of lines of "key number"."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == key:
            return int(words[1])
    return None
