"""The machine's own processors: cores and memory, as limited by affinity and cgroups.

Knows /proc, /sys/fs/cgroup and the scheduler's affinity. Changes nothing.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from octavo.interfaces.platform import Platform

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_CPUINFO = Path("/proc/cpuinfo")
_UNLIMITED = 1 << 60
_KIB = 1024
# What tells how fast kernels can be, among the "flags" of x86 and the "Features" of Arm.
_INSTRUCTIONS = ("avx", "amx", "f16c", "fma", "asimd", "i8mm", "bf16", "sve")


class CpuPlatform(Platform):
    """A CPU-only machine."""

    def why_not(self) -> list[str]:
        """A CPU is always there."""
        return []

    def num_threads(self) -> int:
        """Return the cores that affinity allows, and no more than the cgroup's quota."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        quota = _cpu_quota()
        return max(1, min(cores or 1, quota or cores or 1))

    def available_bytes(self) -> int:
        """Return what the system calls available, and no more than the cgroup leaves."""
        return min(_system_available_bytes(), _cgroup_available_bytes())

    def describe(self) -> dict[str, str]:
        """Return facts for people."""
        return {
            "cpu": _cpu_field("model name") or platform.processor() or platform.machine(),
            "threads": str(self.num_threads()),
            "available_memory_mib": str(self.available_bytes() // 2**20),
            "instructions": " ".join(
                flag
                for flag in (_cpu_field("flags") or _cpu_field("Features")).split()
                if flag.startswith(_INSTRUCTIONS)
            ),
        }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _cpu_quota() -> int | None:
    """Return the whole cores of a cgroup's quota (v2, then v1), rounded up; None if unlimited."""
    parts = _read(_CGROUP / "cpu.max").split()
    if len(parts) == 2 and parts[0] != "max":  # noqa: PLR2004 - "quota period"
        return max(1, -(-int(parts[0]) // int(parts[1])))
    quota = _read(_CGROUP / "cpu/cpu.cfs_quota_us").strip()
    period = _read(_CGROUP / "cpu/cpu.cfs_period_us").strip()
    if quota and period and int(quota) > 0:
        return max(1, -(-int(quota) // int(period)))
    return None


def _system_available_bytes() -> int:
    for line in _read(_MEMINFO).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * _KIB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_available_bytes() -> int:
    """Return limit - use of the cgroup; page cache is not counted as use."""
    for limit_name, usage_name, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = _read(_CGROUP / limit_name).strip(), _read(_CGROUP / usage_name).strip()
        if limit.isdigit() and usage.isdigit() and int(limit) < _UNLIMITED:
            folder = (_CGROUP / limit_name).parent
            cached = _stat_field(_read(folder / "memory.stat"), cache_key)
            return max(0, int(limit) - int(usage) + cached)
    return _UNLIMITED


def _stat_field(text: str, key: str) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def _cpu_field(key: str) -> str:
    for line in _read(_CPUINFO).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
