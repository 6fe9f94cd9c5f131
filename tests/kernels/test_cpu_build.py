"""Compiling the CPU kernels: the cache, and machines where something is missing or in the way.

Most tests compile one small source instead of the kernels, which takes a tenth of a second.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo_kernels.cpu import build, cache, toolchain
from octavo_kernels.cpu.build import Built, built
from octavo_kernels.cpu.library import Library
from octavo_kernels.cpu.toolchain import NATIVE, BuildError, BuildOptions

HOW = "install g++ 9 or newer (on Debian: apt-get install g++), or set CXX to a C++17 compiler"
FLAGS = " ".join(NATIVE.compile_flags())
#: builds what is in $SOURCES, in a process that can be killed
SCRIPT = """
import os, sys
from pathlib import Path
from octavo_kernels.cpu.build import built
from octavo_kernels.cpu.toolchain import NATIVE
with built(NATIVE, None, Path(os.environ["SOURCES"])) as made:
    print(made.path)
"""


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A small library's sources; the cache is an empty folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "exports.map").write_text("{ global: octavo_*; local: *; };")
    (folder / "small.cpp").write_text(
        '#include "number.h"\nextern "C" int omp_in_parallel();\n'
        'extern "C" int octavo_number() { return omp_in_parallel() + NUMBER; }\n'
    )
    (folder / "number.h").write_text("#define NUMBER 41\n")
    return folder


def number(made: Built) -> int:
    return ctypes.CDLL(str(made.path)).octavo_number()


def make(sources: Path, options: BuildOptions = NATIVE) -> Path:
    """The path in the cache."""
    with built(options, None, sources) as made:
        assert made.note == ""
        assert number(made)
        return made.path


def kept(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache/octavo/kernels").iterdir())


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def message(sources: Path) -> list[str]:
    with pytest.raises(BuildError) as caught, built(NATIVE, None, sources):
        pass
    return str(caught.value).splitlines()


def test_a_library_is_compiled_once(sources, tmp_path):
    steps = []
    with built(NATIVE, lambda *step: steps.append(step), sources) as made:
        assert number(made) == 41
    with built(NATIVE, lambda *step: steps.append(step), sources) as again:
        assert again == made

    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert kept(tmp_path) == [".lock", made.path.name]
    for folder in (made.path.parent, made.path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_process_that_waits_for_another_says_so(sources, tmp_path):
    make(sources)
    (sources / "number.h").write_text("#define NUMBER 42\n")
    steps, waiting = [], threading.Event()

    def told(*step: int) -> None:
        steps.append(step)
        waiting.set()

    def wait_for_it() -> None:
        with built(NATIVE, told, sources) as made:
            assert number(made) == 42

    folder = tmp_path / "cache" / "octavo" / "kernels"
    thread = threading.Thread(target=wait_for_it)
    with cache.locked(folder, lambda: None):
        thread.start()
        assert waiting.wait(30)
        assert steps == [(0, 1)]
    thread.join()
    assert steps[1:] == [(0, 2), (1, 2), (2, 2)]


def test_whatever_a_library_is_made_from_names_it(sources, monkeypatch):
    plain = make(sources)
    other_flags = make(sources, BuildOptions(architecture="native", is_sanitized=False))
    assert other_flags == plain

    (sources / "number.h").write_text("#define NUMBER 42\n")
    with built(NATIVE, None, sources) as changed:
        assert number(changed) == 42
    paths = {plain, changed.path}
    if platform.machine() == "x86_64":
        paths.add(make(sources, BuildOptions(architecture="x86-64-v2")))
        assert len(paths) == 3
    monkeypatch.setattr(toolchain, "cpu_identity", lambda: "another CPU")
    paths.add(make(sources))
    monkeypatch.setenv("CXX", script(sources.parent / "cc", 'echo "v2"; exec g++ "$@"'))
    paths.add(make(sources))
    assert len(paths) == (5 if platform.machine() == "x86_64" else 4)


def test_a_source_that_does_not_compile(sources, tmp_path):
    (sources / "small.cpp").write_text("int f() { return nothing; }\n")

    assert message(sources) == [
        "the C++ compiler failed on the CPU kernels (code 1)",
        f"  command: g++ {FLAGS} -c small.cpp -o small.cpp.o",
        f"  sources: {sources}",
        "  small.cpp:1:18: error: 'nothing' was not declared in this scope",
        f"  {HOW}",
    ]
    assert kept(tmp_path) == [".lock"]


def test_a_library_that_does_not_link(sources, tmp_path):
    (sources / "small.cpp").write_text('void f();\nextern "C" void octavo_f() { f(); }\n')

    said = message(sources)
    assert said[0] == "the C++ compiler failed on the CPU kernels (code 1)"
    assert said[1].startswith("  command: g++ -shared ")
    assert any("undefined reference to `f()'" in line for line in said)
    assert kept(tmp_path) == [".lock"]


def test_no_compiler(sources, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert message(sources) == [
        "no C++ compiler for the CPU kernels",
        "  g++: not found",
        "  c++: not found",
        "  clang++: not found",
        f"  {HOW}",
    ]


def test_no_compiler_any_more(sources, tmp_path, monkeypatch):
    path = make(sources)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert make(sources) == path


def test_the_compiler_that_the_user_names(sources, monkeypatch):
    (sources / "number.h").write_text("")
    monkeypatch.setenv("CXX", "g++ '-DNUMBER=7'")
    with built(NATIVE, None, sources) as made:
        assert number(made) == 7


def test_a_compiler_that_the_user_names_in_vain(sources, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert message(sources)[1] == "  no-such-compiler -O2: not found (from CXX)"
    monkeypatch.setenv("CXX", script(sources / "broken", "echo out of order >&2; exit 3"))
    assert message(sources)[1] == (
        f"  {sources}/broken: '--version' failed with code 3 out of order (from CXX)"
    )


def test_what_another_compiler_made_is_used_where_the_named_one_cannot_be_asked(
    sources, monkeypatch
):
    path = make(sources)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with built(NATIVE, None, sources) as made:
        assert (made.path, number(made)) == (path, 41)
    assert made.note == (
        "the CPU kernels are those that another compiler made: no-such-compiler: not found "
        "(from CXX)"
    )
    (sources / "number.h").write_text("#define NUMBER 42\n")
    assert message(sources)[0] == "no C++ compiler for the CPU kernels", "of other sources is none"


def test_a_compiler_that_does_not_run_is_passed_over(sources, tmp_path, monkeypatch):
    script(tmp_path / "g++", "exit 1")
    (tmp_path / "c++").symlink_to(Path(subprocess.check_output(["which", "g++"], text=True)[:-1]))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    make(sources)
    assert toolchain.find_compiler().command == ("c++",)


def test_a_compiler_that_hangs(sources, tmp_path, monkeypatch):
    hangs = script(tmp_path / "hangs", '[ "$1" = --version ] && exit 0; exec sleep 60')
    monkeypatch.setenv("CXX", hangs)
    monkeypatch.setattr(build, "_COMMAND_TIMEOUT_S", 0.3)

    assert message(sources)[0] == "compiling the CPU kernels took more than 0.3 s"
    assert kept(tmp_path) == [".lock"]


# --------------------------------------------------------------------------- other machines

ARM_CPUINFO = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd aes asimdhp cpuid asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

processor\t: 1
BogoMIPS\t: 50.00
"""


@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_an_arm_cpu_is_asked_for_by_its_own_flag(monkeypatch, machine):
    assert NATIVE.compile_flags()[-1] == f"-m{'cpu' if on_arm() else 'arch'}=native"
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))

    assert NATIVE.compile_flags()[-1] == "-mcpu=native"
    assert BuildOptions("armv8.2-a+dotprod").compile_flags()[-1] == "-march=armv8.2-a+dotprod"


def on_arm() -> bool:
    return platform.machine() in {"aarch64", "arm64"}


def test_what_tells_an_arm_cpu_from_others(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(toolchain, "_CPUINFO", cpuinfo)
    cpuinfo.write_text(ARM_CPUINFO)
    identity = toolchain.cpu_identity()
    assert identity.splitlines() == [
        "aarch64",
        "Features\t: fp asimd aes asimdhp cpuid asimddp",
        "CPU implementer\t: 0x41",
        "CPU architecture: 8",
        "CPU variant\t: 0x3",
        "CPU part\t: 0xd0c",
    ]
    cpuinfo.write_text(ARM_CPUINFO.replace(" asimddp", ""))
    assert toolchain.cpu_identity() != identity
    cpuinfo.unlink()
    assert toolchain.cpu_identity() == "aarch64"


# ------------------------------------------------------------- a cache that cannot be used


def assert_made_in_private(sources: Path, tmp_path: Path, monkeypatch, reason: str) -> None:
    """The library is made nevertheless, its folder goes at the end, and one line says why."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with built(NATIVE, None, sources) as made:
        assert number(made) == 41
        assert temporary in made.path.parents
    assert made.note == (
        f"the compiled CPU kernels cannot be kept, and are compiled at each start: {reason};"
        " set XDG_CACHE_HOME to a folder of your own that can be written"
    )
    assert list(temporary.iterdir()) == []


def test_a_cache_that_cannot_be_written(sources, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/here")
    reason = "No such file or directory: '/proc/here'"
    assert_made_in_private(sources, tmp_path, monkeypatch, reason)


def test_a_file_where_the_cache_should_be(sources, tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/octavo").write_text("")
    reason = f"File exists: '{tmp_path}/cache/octavo'"
    assert_made_in_private(sources, tmp_path, monkeypatch, reason)


def test_a_cache_that_others_can_write_to(sources, tmp_path, monkeypatch):
    folder = make(sources).parent
    folder.chmod(0o770)
    reason = f"'{folder}' can be written by others (mode 770)"
    assert_made_in_private(sources, tmp_path, monkeypatch, reason)


def test_a_cache_of_somebody_else(sources, tmp_path, monkeypatch):
    folder = make(sources).parent
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    reason = f"'{folder.parent}' belongs to another user (id {folder.stat().st_uid})"
    assert_made_in_private(sources, tmp_path, monkeypatch, reason)


def test_a_link_to_another_folder(sources, tmp_path, monkeypatch):
    (tmp_path / "cache/octavo").mkdir(parents=True, mode=0o700)
    (tmp_path / "cache/octavo/kernels").symlink_to(sources)
    reason = f"'{tmp_path}/cache/octavo/kernels' is not a folder"
    assert_made_in_private(sources, tmp_path, monkeypatch, reason)


def test_a_full_disk(sources, tmp_path, monkeypatch):
    full = (
        'case "$PWD:$1" in *cache*-std*)'
        ' echo "fatal error: can\'t write to small.o: No space left on device" >&2; exit 1;; esac\n'
        'exec g++ "$@"'
    )
    monkeypatch.setenv("CXX", script(tmp_path / "full", full))
    reason = f"No space left on device: '{tmp_path}/cache/octavo/kernels'"
    assert_made_in_private(sources, tmp_path, monkeypatch, reason)
    assert kept(tmp_path) == [".lock"]


def test_a_disk_that_is_full_already(sources, tmp_path, monkeypatch):
    write = Path.write_bytes

    def write_or_not(path: Path, data: bytes) -> int:
        if "cache" in path.parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_or_not)
    reason = f"No space left on device: '{tmp_path}/cache/octavo/kernels'"
    assert_made_in_private(sources, tmp_path, monkeypatch, reason)
    assert kept(tmp_path) == [".lock"]


def test_no_folder_at_all(sources, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/here")
    monkeypatch.setattr(tempfile, "tempdir", "/proc/there")

    said = message(sources)
    assert said[0] == "no folder to compile the CPU kernels in"
    assert said[2] == "  set XDG_CACHE_HOME or TMPDIR to a folder that can be written"


def test_a_library_that_was_cut_or_damaged_is_made_again(sources):
    path = make(sources)
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (b"", whole[:10], whole[:-1], flipped):
        path.unlink()  # it is mapped
        path.write_bytes(damaged)
        assert not cache.is_whole(path)
        assert make(sources) == path
        assert cache.is_whole(path)


def test_old_libraries_go(sources, tmp_path):
    folder = make(sources).parent
    for age in range(20):
        old = folder / f"old{age}.so"
        old.write_bytes(b"")
        os.utime(old, (time.time() - 100 - age,) * 2)
    (sources / "number.h").write_text("#define NUMBER 42\n")
    path = make(sources)

    assert path.name in kept(tmp_path)
    assert len(kept(tmp_path)) == 1 + cache.KEPT_LIBRARIES
    assert "old13.so" in kept(tmp_path)
    assert "old14.so" not in kept(tmp_path)


# ------------------------------------------------------------------------- several processes


def start(sources: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "SOURCES": str(sources)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_of_several_processes_one_compiles(sources, tmp_path, monkeypatch):
    log = tmp_path / "log"
    logs = f'[ "$1" = --version ] || {{ echo "$1" >> {log}; sleep 0.3; }}; exec g++ "$@"'
    monkeypatch.setenv("CXX", script(tmp_path / "logs", logs))
    processes = [start(sources) for _ in range(4)]
    paths = {process.communicate(timeout=60)[0] for process in processes}

    assert [process.returncode for process in processes] == [0] * 4
    assert len(paths) == 1
    assert log.read_text().split() == ["-std=c++17", "-shared"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_build_that_is_killed_is_in_nobodys_way(sources, tmp_path, monkeypatch, how):
    stops = f'[ "$1" = --version ] || {{ touch {tmp_path}/begun; sleep 2; }}; exec g++ "$@"'
    monkeypatch.setenv("CXX", script(tmp_path / "stops", stops))
    process = start(sources)
    deadline = time.monotonic() + 30
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(how)
    process.wait(timeout=30)
    process.stdout.close()
    monkeypatch.setenv("CXX", "g++")

    if how == signal.SIGINT:
        assert kept(tmp_path) == [".lock"]
    path = make(sources)
    assert kept(tmp_path) == [".lock", path.name]


# ------------------------------------------------------------------------------ the kernels


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86")
def test_a_cpu_without_avx2(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BuildError) as caught, built(BuildOptions(architecture="x86-64-v2")):
        pass

    assert caught.value.headline == (
        "this CPU cannot run the compiled kernels: they need AVX2 with FMA and F16C, AVX-512 with"
        " VNNI, or NEON"
    )
    assert caught.value.facts[0].startswith("command: ")


@pytest.mark.full
def test_the_kernels_compile_in_time(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    start = time.perf_counter()
    Library.load()

    assert time.perf_counter() - start < 30  # 15 s where nothing else runs


def test_no_library_can_be_loaded_from_nothing(tmp_path):
    (tmp_path / "x.so").write_bytes(b"nothing")
    with pytest.raises(BuildError, match="cannot load the compiled CPU kernels"):
        Library(tmp_path / "x.so")
