"""A driver for Triton that compiles for a GPU that is not there, and launches nothing.

Kernels are called as always, with tensors in main memory; what was compiled and launched is kept.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

#: a number that no device has, so that no kernel compiled here is ever found for a real one
DEVICE = 4242
SHARED_BYTES = 232_448


@dataclass
class Launch:
    """One launch: the kernel's name, what Triton says of it, and the grid."""

    name: str
    metadata: Any
    grid: tuple[int, ...]


@dataclass
class StubDriver:
    """What Triton asks of a driver, for NVIDIA's architecture of a number such as 90."""

    arch: int
    launches: list[Launch] = field(default_factory=list)

    @property
    def utils(self):
        return self

    def get_current_target(self):
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self):
        return DEVICE

    def get_current_stream(self, device):
        return 0

    def get_device_properties(self, device):
        return {"max_shared_mem": SHARED_BYTES}

    def load_binary(self, name, kernel, shared, device):
        return name, kernel, 0, 0, 1024

    def launcher_cls(self, source, metadata):
        def launch(*args):
            self.launches.append(Launch(metadata.name, metadata, args[:3]))

        return launch


@contextmanager
def compiling_for(arch, *kernels):
    """Yield a driver that compiles for `arch`; what it compiled of `kernels` is forgotten after."""
    before, stub = driver._active, StubDriver(arch)
    driver.set_active(stub)
    try:
        yield stub
    finally:
        driver._active = before
        for kernel in kernels:
            for one in compiled(kernel):
                one.module = None  # it was never loaded, and is not to be unloaded
            del kernel.device_caches[DEVICE]


def compiled(kernel):
    """Return what was compiled of a kernel here."""
    return list(kernel.device_caches[DEVICE][0].values())
