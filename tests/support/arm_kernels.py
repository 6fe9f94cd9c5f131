"""The CPU kernels for 64-bit Arm, cross-compiled, and called under qemu as if they were here.

Every call is made by the kernels for AVX2 too, and whatever both leave in memory is compared.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from octavo_kernels.cpu import toolchain
from octavo_kernels.cpu.build import built
from octavo_kernels.cpu.library import Library
from reached_memory import ReachedMemory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from octavo_kernels.cpu.toolchain import BuildOptions

COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
SYSTEM_ROOT = "/usr/aarch64-linux-gnu"
PAGE_BYTES = 4096
NUMBER, PLACE, EMPTY = range(3)


def what_is_missing() -> str:
    """Why Arm's code cannot be made and run here; empty if it can."""
    missing = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    if not missing:
        return ""
    return (
        f"{' and '.join(missing)} not installed"
        " (on Debian: apt-get install g++-aarch64-linux-gnu qemu-user)"
    )


@contextlib.contextmanager
def machine(cpu: str) -> Iterator[None]:
    """Let the build code believe that it runs on a Linux machine with a CPU of Arm's."""
    here = os.uname()
    there = types.SimpleNamespace(sysname=here.sysname, machine="aarch64")
    compiler = f"sh {Path(__file__).with_name('arm_gxx.sh')} {cpu}"
    with (
        mock.patch.object(os, "uname", return_value=there),
        mock.patch.dict(os.environ, CXX=compiler),
        # torch's is of this machine: the compiler's own is used
        mock.patch.object(toolchain, "openmp_runtime", return_value=None),
    ):
        yield


@functools.cache
def library(cpu: str, twin: BuildOptions) -> Library:
    """The kernels as a machine with that CPU compiles them, and beside them those of this one."""
    with built(twin) as here:
        at_home = ctypes.CDLL(str(here.path))
    with machine(cpu), built() as there:
        emulated = EmulatedLibrary(there.path, cpu, at_home)
        with mock.patch.object(ctypes, "CDLL", return_value=emulated):
            return Library(there.path)


class EmulatedLibrary:
    """What `ctypes.CDLL` is for a library of this machine: its functions by name."""

    def __init__(self, path: Path, cpu: str, twin: ctypes.CDLL) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="octavo-arm-")
        driver = Path(self._folder.name) / "driver"
        source = Path(__file__).with_name("arm_driver.cpp")
        subprocess.run([COMPILER, "-std=c++17", "-O1", source, "-o", driver, "-ldl"], check=True)
        # the cache may drop it, and it is opened later
        own = shutil.copy(path, self._folder.name)
        self._process = subprocess.Popen(
            [EMULATOR, "-cpu", cpu, "-L", SYSTEM_ROOT, driver, own],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._twin = twin
        atexit.register(self._close)

    def __getattr__(self, name: str) -> EmulatedFunction:
        function = EmulatedFunction(self._process, name, self._twin[name])
        setattr(self, name, function)
        return function

    def __getitem__(self, name: str) -> EmulatedFunction:
        function: EmulatedFunction = getattr(self, name)
        return function

    def _close(self) -> None:
        self._process.communicate(timeout=60)
        self._folder.cleanup()


class EmulatedFunction:
    """A function as `ctypes` has them. Arguments of type c_void_p are addresses, others numbers.

    The last argument of `octavo_run` leads to memory that holds nothing before and after.
    """

    argtypes: tuple[Any, ...] | None = None
    restype: Any = ctypes.c_int64

    def __init__(self, process: subprocess.Popen[bytes], name: str, twin: Any) -> None:
        self._process, self._name, self._twin = process, name, twin

    def __call__(self, *given: Any) -> int | None:
        # text is a buffer like others, which is found as a variable of this function
        texts = [ctypes.create_string_buffer(one) for one in given if isinstance(one, bytes)]
        arguments = [
            ctypes.c_void_p(ctypes.addressof(texts[0])) if isinstance(one, bytes) else one
            for one in given
        ]
        request = Request(self._name, sys._getframe())
        for place, argument in enumerate(arguments):
            request.add(argument, is_empty=self._name == "octavo_run" and place == 3)
        self._process.stdin.write(request.encoded())
        self._process.stdin.flush()
        self._twin.argtypes, self._twin.restype = self.argtypes, self.restype
        at_home = self._twin(*given)
        result = struct.unpack("<q", self._read(8))[0]
        # all of it, so that the next call finds its own answer
        answers = [(address, self._read(size)) for address, size in request.buffers()]
        assert self.restype is None or result == at_home, self._name
        for address, data in answers:
            assert_equal(data, ctypes.string_at(address, len(data)), self._name)
            ctypes.memmove(address, data, len(data))
        return at_home

    def _read(self, size: int) -> bytes:
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise AssertionError(f"qemu ended with {self._process.wait()} in '{self._name}'")
        return data


def assert_equal(arm: bytes, x86: bytes, name: str) -> None:
    """Memory is the same, but for which NaN it is, and for the byte that a NaN is rounded to."""
    if arm == x86:
        return
    one, other = (np.frombuffer(data, dtype=np.uint8) for data in (arm, x86))
    is_wrong = (one != other) & ~((one == 0) & (other == 0x80))
    for dtype in (np.float16, np.float32):
        width = np.dtype(dtype).itemsize
        end = len(one) // width * width
        both = [np.isnan(all_bytes[:end].view(dtype)) for all_bytes in (one, other)]
        is_wrong[:end] &= ~np.repeat(both[0] & both[1], width)
    if is_wrong.any():
        first = int(is_wrong.argmax()) // 4 * 4
        raise AssertionError(
            f"{name}: {is_wrong.sum()} of {len(one)} bytes differ; from {first} on Arm has"
            f" {arm[first : first + 16].hex(' ', 4)}, AVX2 {x86[first : first + 16].hex(' ', 4)}"
        )


class Request:
    """A call, and the memory that it uses, as arm_driver.cpp reads them."""

    def __init__(self, name: str, frame: FrameType) -> None:
        self._name = name.encode()
        self._memory = ReachedMemory(frame)
        self._numbers: dict[tuple[int, int], int] = {}  # of spans
        self._pointers: list[tuple[int, ...]] = []
        self._arguments: list[tuple[int, ...]] = []

    def add(self, argument: Any, *, is_empty: bool) -> None:
        """Add an argument."""
        if not isinstance(argument, ctypes.c_void_p) or not argument.value:
            self._arguments.append((NUMBER, getattr(argument, "value", argument) or 0))
        elif is_empty:
            end = self._memory.span(argument.value)[1]
            self._arguments.append((EMPTY, end - argument.value))
        else:
            self._arguments.append((PLACE, *self._place(argument.value)))

    def buffers(self) -> Iterator[tuple[int, int]]:
        """Yield address and size of each buffer, in order."""
        for first, end in self._numbers:
            yield first, end - first

    def encoded(self) -> bytes:
        """The request as bytes."""
        parts = [numbers(len(self._name)), self._name, numbers(len(self._numbers))]
        for address, size in self.buffers():
            parts += (numbers(size, address % PAGE_BYTES), ctypes.string_at(address, size))
        parts.append(numbers(len(self._pointers)))
        parts += (numbers(*pointer) for pointer in self._pointers)
        parts.append(numbers(len(self._arguments)))
        parts += (numbers(*argument) for argument in self._arguments)
        return b"".join(parts)

    def _place(self, address: int) -> tuple[int, int]:
        """The number of a buffer, and an offset; the buffer is taken in if it is not yet."""
        span = self._memory.span(address)
        if span not in self._numbers:
            self._numbers[span] = len(self._numbers)
            for place, target in self._memory.pointers(span):
                self._pointers.append((*self._place(place), *self._place(target)))
        return self._numbers[span], address - span[0]


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)
