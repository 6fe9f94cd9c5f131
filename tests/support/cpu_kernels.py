"""The compiled CPU kernels in every variant that this machine runs, and calls made from tensors.

In a process with libasan preloaded they are the sanitized kernels, so that any test of theirs can
run on these. With a CPU of Arm's in $OCTAVO_TEST_ARM_CPU they are that one's, emulated.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
from typing import TYPE_CHECKING, Any

import torch

import arm_kernels
from octavo_kernels.cpu.calls import ARGUMENTS
from octavo_kernels.cpu.library import Call, Library, Program
from octavo_kernels.cpu.packing import PackedMatrix
from octavo_kernels.cpu.toolchain import NATIVE, BuildOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

AVX2 = BuildOptions(architecture="haswell")
AVX2_LANES = 8
IS_SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
ARM_CPU = os.environ.get("OCTAVO_TEST_ARM_CPU")


@functools.cache
def library(options: BuildOptions = NATIVE) -> Library:
    if ARM_CPU:
        return arm_kernels.library(ARM_CPU, AVX2)
    return Library.load(dataclasses.replace(options, is_sanitized=IS_SANITIZED))


@functools.cache
def variants() -> tuple[str, ...]:
    """The -march of each: where vectors are wider than AVX2's, AVX2's are tested beside them."""
    is_wider = platform.machine() == "x86_64" and library().lanes > AVX2_LANES
    return (NATIVE.architecture, AVX2.architecture) if is_wider else (NATIVE.architecture,)


def count(number: int) -> torch.Tensor:
    """A count as calls read it."""
    return torch.tensor([number], dtype=torch.int64)


def call(operation: str, shared_bytes: int = 0, **fields: Any) -> Call:
    """A call whose addresses are tensors and packed weights."""
    kept, plain = [], {}
    for name, value in fields.items():
        plain[name] = value
        if isinstance(value, (torch.Tensor, PackedMatrix)):
            plain[name] = value.data_ptr() if isinstance(value, torch.Tensor) else value.address
            kept.append(value)
    return Call(operation, ARGUMENTS[operation](**plain), tuple(kept), shared_bytes)


def run(calls: Sequence[Call], options: BuildOptions = NATIVE, num_threads: int = 2) -> None:
    Program(library(options), calls).run(num_threads)
