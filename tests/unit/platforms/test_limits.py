"""The tightest of what the machine, cgroups of both versions and ulimit leave to a process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from octavo_plugins.platforms import limits

MIB = 2**20
MEMINFO = f"MemTotal: {9000 << 10} kB\nMemAvailable: {8000 << 10} kB\n"
V1_UNLIMITED = 9223372036854771712


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return what writes the files of a machine with 8000 MiB, by path below /proc or /sys."""

    def write(files: dict[str, object]) -> None:
        for name, text in {"proc/meminfo": MEMINFO, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text))

    monkeypatch.setattr(limits, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(limits, "_CGROUP", tmp_path / "cgroup")
    return write


def group(name: str, limit_mib: int | str, used_mib: int, cache_mib: int = 0) -> dict[str, object]:
    """Return the files of a version 2 group."""
    limit = limit_mib if isinstance(limit_mib, str) else limit_mib * MIB
    return {
        f"cgroup/{name}memory.max": limit,
        f"cgroup/{name}memory.current": used_mib * MIB,
        f"cgroup/{name}memory.stat": f"anon 5\ninactive_file {cache_mib * MIB}\n",
    }


def test_without_limits_it_is_what_the_machine_has(machine):
    machine({})
    assert limits.memory_limit() == (8000 * MIB, "the machine")
    assert limits.cpu_quota() is None


def test_a_container_sees_its_group_as_the_root(machine):
    machine({"proc/self/cgroup": "0::/\n", **group("", 1000, 300, 100)})
    assert limits.memory_limit().available_bytes == 800 * MIB


@pytest.mark.parametrize(("service", "left"), [(500, 400), ("max", 690)])
def test_a_group_and_all_above_it_hold(machine, service, left, tmp_path):
    machine(
        {
            "proc/self/cgroup": "0::/some.slice/some.service\n",
            **group("some.slice/", 700, 10),
            **group("some.slice/some.service/", service, 100),
        }
    )
    name = "some.slice/some.service" if left == 400 else "some.slice"
    assert limits.memory_limit() == (left * MIB, f"cgroup {tmp_path}/cgroup/{name}")


def test_groups_of_version_1_are_found_by_their_controllers(machine):
    machine(
        {
            "proc/self/cgroup": "4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/\n",
            "cgroup/memory/memory.limit_in_bytes": V1_UNLIMITED,
            "cgroup/memory/memory.usage_in_bytes": 0,
            "cgroup/memory/a/b/memory.limit_in_bytes": 600 * MIB,
            "cgroup/memory/a/b/memory.usage_in_bytes": 200 * MIB,
            "cgroup/memory/a/b/memory.stat": f"inactive_file 1\ntotal_inactive_file {50 * MIB}\n",
            "cgroup/cpu/cpu.cfs_quota_us": -1,
            "cgroup/cpu/cpu.cfs_period_us": 100000,
            "cgroup/cpu/c/cpu.cfs_quota_us": 150000,
            "cgroup/cpu/c/cpu.cfs_period_us": 100000,
        }
    )
    assert limits.memory_limit().available_bytes == 450 * MIB
    assert limits.cpu_quota() == 2


def test_a_group_outside_of_what_can_be_seen_is_the_root(machine):
    machine({"proc/self/cgroup": "0::/../../other\n", **group("", 1000, 300)})
    assert limits.memory_limit().available_bytes == 700 * MIB


@pytest.mark.parametrize(("text", "cores"), [("max 100000", None), ("250000 100000", 3)])
def test_a_quota_is_rounded_up_to_cores(machine, text, cores):
    machine({"proc/self/cgroup": "0::/x\n", "cgroup/x/cpu.max": text})
    assert limits.cpu_quota() == cores


@pytest.mark.parametrize(
    ("kind", "origin"),
    [(resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")],
)
def test_limits_of_the_process_count_and_leave_room_for_threads(kind, origin):
    code = (
        "import json, resource, sys; from octavo_plugins.platforms import limits;"
        f"resource.setrlimit({kind}, ({1000 * MIB}, {1000 * MIB}));"
        "one = limits.memory_limit(); block = bytearray(100 << 20); two = limits.memory_limit();"
        "print(json.dumps([one.available_bytes, one.origin, two.available_bytes]))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, said, after = json.loads(made.stdout)
    assert said == origin
    assert 300 * MIB < before < (1000 - 256) * MIB
    assert 100 * MIB <= before - after < 101 * MIB
