"""What this machine compiles with: its compiler, the flags, its CPU, and torch's OpenMP runtime.

Knows commands and flags. Does not know the kernels, nor where they are kept once compiled.
Importing it imports no torch.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMPILERS: Final = ("g++", "c++", "clang++")
HOW_TO_COMPILE: Final = (
    "install g++ 9 or newer (on Debian: apt-get install g++), or set CXX to a C++17 compiler"
)
_VERSION_TIMEOUT_S: Final = 30

# Contraction stays off so that a kernel gives the same bits however it is unrolled.
_FLAGS: Final = (
    "-std=c++17",
    "-fPIC",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fno-semantic-interposition",
    "-Wall",
    "-Wfatal-errors",  # a CPU that vectors.h refuses is known at once
    "-Wextra",
    "-Werror=return-type",
    # gcc's own headers of vector instructions set them off
    "-Wno-uninitialized",
    "-Wno-maybe-uninitialized",
)
_SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# What tells one CPU from another in /proc/cpuinfo, on x86 and on Arm.
_CPU_KEYS: Final = frozenset(
    {
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "stepping",
        "flags",
        "Features",
        "CPU implementer",
        "CPU architecture",
        "CPU variant",
        "CPU part",
    }
)
_CPUINFO: Final = Path("/proc/cpuinfo")
_FIRST_CPU_BYTES: Final = 1 << 14
# What Linux and macOS call 64-bit Arm.
_ARM: Final = frozenset({"aarch64", "arm64"})
# The names that torch's wheels give the runtime; the last ones also serve code made for the first.
_OPENMP_FILES: Final = ("libgomp*.so*", "libiomp5*.so*", "libomp*.so*")


class BuildError(RuntimeError):
    """The kernels cannot be compiled or loaded: a headline, and one fact a line."""

    def __init__(self, headline: str, *facts: str) -> None:
        super().__init__("\n  ".join((headline, *facts)))
        self.headline = headline
        self.facts = facts


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What is compiled.

    `architecture` is the compiler's -march; `native` is what this machine's CPU has.
    `is_sanitized` asks for a build that stops at the first bad access or undefined operation; a
    process that loads it needs libasan preloaded.
    """

    architecture: str = "native"
    is_sanitized: bool = False

    def compile_flags(self) -> tuple[str, ...]:
        """Return the flags of every source."""
        speed = ("-O1", "-g", *_SANITIZERS) if self.is_sanitized else ("-O3",)
        # on Arm, clang knows `native` as a CPU alone
        is_cpu = self.architecture == "native" and os.uname().machine in _ARM
        return (*_FLAGS, *speed, f"{'-mcpu' if is_cpu else '-march'}={self.architecture}")

    def link_flags(self) -> tuple[str, ...]:
        """Return the flags of the library, but for the OpenMP runtime."""
        return ("-shared", "-pthread", "-Wl,-z,defs", *(_SANITIZERS if self.is_sanitized else ()))


#: the kernels for this machine
NATIVE: Final = BuildOptions()


@dataclass(frozen=True, slots=True)
class Compiler:
    """A command that compiles C++, and what it says of its version."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """Return the compiler that $CXX names, or the first of g++, c++ and clang++ that runs.

    Raises BuildError, with what each said, if there is none.
    """
    asked = shlex.split(os.environ.get("CXX", ""))
    commands = [asked] if asked else [[name] for name in COMPILERS]
    reasons = []
    for command in commands:
        reason = _why_not(command)
        if isinstance(reason, Compiler):
            return reason
        reasons.append(f"{shlex.join(command)}: {reason}{' (from CXX)' if asked else ''}")
    raise BuildError("no C++ compiler for the CPU kernels", *reasons, HOW_TO_COMPILE)


def _why_not(command: list[str]) -> Compiler | str:
    """Return the compiler, or the reason why a command is none."""
    if shutil.which(command[0]) is None:
        return "not found"
    try:
        done = subprocess.run(  # noqa: S603 - the user's own compiler
            [*command, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_VERSION_TIMEOUT_S,
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"'--version' took more than {_VERSION_TIMEOUT_S} s"
    if done.returncode:
        said = first_lines(done.stderr, 1)
        return " ".join((f"'--version' failed with code {done.returncode}", *said))
    return Compiler(tuple(command), done.stdout)


def first_lines(text: str, count: int) -> list[str]:
    """Return the first lines of a text that are not empty."""
    return [line.rstrip() for line in text.splitlines() if line.strip()][:count]


def openmp_runtime() -> Path | None:
    """Return torch's OpenMP runtime, which must be the only one in a process.

    None without torch, or where torch uses the system's: then the compiler's is the same.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = Path(spec.submodule_search_locations[0])
    for folder in (package / "lib", package.with_name("torch.libs")):
        for pattern in _OPENMP_FILES:
            for path in sorted(folder.glob(pattern)):
                return path
    return None


def openmp_link_flags(runtime: Path | None) -> tuple[str, ...]:
    """Return the flags that link a runtime from where it is, or the compiler's own for None."""
    if runtime is None:
        return ("-fopenmp",)
    return (str(runtime), f"-Wl,-rpath,{runtime.parent}")


def cpu_identity() -> str:
    """Return what tells this CPU from others: code made for another may not run here."""
    try:
        # the first of many equal processors is enough, and reading them all takes milliseconds
        with _CPUINFO.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_FIRST_CPU_BYTES)
    except OSError:
        text = ""
    lines = text.partition("\n\n")[0].splitlines()
    kept = [line for line in lines if line.partition(":")[0].strip() in _CPU_KEYS]
    return "\n".join((os.uname().machine, *kept))
