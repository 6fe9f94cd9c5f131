"""Where Triton kernels can run, and how their modules are loaded.

Triton reads TRITON_INTERPRET once, when it is imported: a process either compiles or interprets.

Knows Triton's presence and tensors' devices. Does not know any kernel. Importing it imports
neither Triton nor torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

# What the drivers of NVIDIA and AMD put there.
_GPU_FILES: Final = ("/dev/nvidiactl", "/dev/kfd")
HOW_TO_INTERPRET: Final = "set TRITON_INTERPRET=1 to have kernels interpreted on the CPU, slowly"
_HIDING: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class TritonUnavailableError(RuntimeError):
    """A Triton kernel was asked for where none can run."""


def is_installed() -> bool:
    """Return whether Triton could be imported."""
    return importlib.util.find_spec("triton") is not None


def is_interpreted() -> bool:
    """Return whether this process interprets kernels, on the CPU, instead of compiling them."""
    if not is_installed():
        return False
    is_asked: bool = importlib.import_module("triton").knobs.runtime.interpret
    return is_asked


def why_no_gpu() -> list[str]:
    """Return the reasons why no GPU can be used, found without asking a driver; none if one can."""
    if not any(Path(name).exists() for name in _GPU_FILES):
        return [f"no GPU: there is neither {' nor '.join(_GPU_FILES)}"]
    return [
        f"{name}={os.environ[name]!r} hides every GPU"
        for name in _HIDING
        if os.environ.get(name) in {"", "-1"}
    ]


def why_not() -> list[str]:
    """Return the reasons why kernels can run nowhere in this process; empty when they can."""
    if not is_installed():
        return ["triton is not installed"]
    return [] if is_interpreted() else why_no_gpu()


def device_name() -> str:
    """Return where this process keeps the tensors that kernels work on, as torch names it."""
    return "cpu" if is_interpreted() else "cuda"


def kernels_for(x: Tensor, name: str) -> ModuleType:
    """Return `octavo_kernels.triton.<name>`, whose kernels are to work on x.

    Raises TritonUnavailableError without Triton, and where kernels cannot reach x.
    """
    if not is_installed():
        raise TritonUnavailableError("a Triton kernel was asked for, and triton is not installed")
    if x.device.type == "cpu" and not is_interpreted():
        raise TritonUnavailableError(
            "Triton kernels work on tensors of a GPU in this process, and were handed one in main"
            f" memory; {HOW_TO_INTERPRET}"
        )
    return importlib.import_module(f"octavo_kernels.triton.{name}")
