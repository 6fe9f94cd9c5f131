"""Calls of the CPU kernels, one by one or joined into a program.

Knows the kernels' library and how tensors become arguments. Does not know any operation.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch

from octavo.errors import UnsupportedError
from octavo.interfaces.native import NativeCall
from octavo_kernels.cpu.library import Call, Library, Program
from octavo_kernels.cpu.toolchain import BuildError
from octavo_plugins.native.cpu_work import work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from octavo.interfaces.native import Work


@functools.cache
def load_library() -> Library:
    """Return the kernels, compiled now if no cache holds them; the same ones for all who ask.

    Raises UnsupportedError with the compiler's reasons.
    """
    try:
        return Library.load()
    except BuildError as error:
        raise UnsupportedError(
            "the CPU kernels cannot be compiled here",
            *str(error).splitlines(),
            "use plain torch instead: --ops torch --attention torch",
        ) from error


@dataclass(frozen=True, slots=True)
class CpuCall(NativeCall):
    """Kernel calls that stand for one operation of an op set or an attention.

    `refresh` is done before they are made: it writes what Python alone knows where kernels read
    it. Operations that share one refresh give equal functions, and it is done once.
    """

    library: Library
    calls: tuple[Call, ...]
    refresh: Callable[[], None] | None = None

    def can_join(self, other: NativeCall) -> bool:
        """Return whether the other is one of the same library."""
        return isinstance(other, CpuCall) and other.library.path == self.library.path

    def join(self, others: Sequence[Self]) -> Callable[[], None]:
        """Return a function that makes all calls inside one parallel region."""
        calls = [call for one in (self, *others) for call in one.calls]
        program = Program(self.library, calls)
        wanted = (one.refresh for one in (self, *others))
        refreshes = list(dict.fromkeys(one for one in wanted if one is not None))

        def run() -> None:
            for refresh in refreshes:
                refresh()
            program.run(torch.get_num_threads())

        return run

    def work(self) -> Work | None:
        """Return what the kernels read and multiply, where that is more than activations."""
        return work_of(self.library, self.calls)

    def make(self) -> None:
        """Make it now."""
        self.join(())()


def address(tensor: Tensor | None) -> int | None:
    """Return where a tensor's first element lies; None stands for no tensor."""
    return None if tensor is None else tensor.data_ptr()
