"""The machine's own processors: cores and memory, as limited by affinity, cgroups and ulimit.

Knows /proc/cpuinfo and the scheduler's affinity. Changes nothing.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from octavo.interfaces.platform import Platform
from octavo_plugins.platforms.limits import cpu_quota, memory_limit, read

_CPUINFO = Path("/proc/cpuinfo")
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
        quota = cpu_quota()
        return max(1, min(cores or 1, quota or cores or 1))

    def available_bytes(self) -> int:
        """Return what the system calls available, and no more than cgroups and ulimit leave."""
        return memory_limit().available_bytes

    def describe(self) -> dict[str, str]:
        """Return facts for people."""
        memory = memory_limit()
        return {
            "cpu": _cpu_field("model name") or platform.processor() or platform.machine(),
            "threads": str(self.num_threads()),
            "available_memory_mib": str(memory.available_bytes // 2**20),
            "memory_limited_by": memory.origin,
            "instructions": " ".join(
                flag
                for flag in (_cpu_field("flags") or _cpu_field("Features")).split()
                if flag.startswith(_INSTRUCTIONS)
            ),
        }


def _cpu_field(key: str) -> str:
    for line in read(_CPUINFO).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
