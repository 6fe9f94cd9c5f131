"""The compiled kernels as Python sees them: operations by name, and lists of calls to run.

Knows how calls lie in memory and that the machine code is loaded. Does not know what an operation
computes, nor tensors: arguments hold addresses, and calls keep alive what these point at.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from octavo_kernels.cpu.build import built
from octavo_kernels.cpu.toolchain import NATIVE, BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from octavo_kernels.cpu.build import Progress
    from octavo_kernels.cpu.toolchain import BuildOptions

_CACHE_LINE_BYTES: Final = 64
Function: TypeAlias = Any  # a function of the library, typed by what is set on it


class _CallRecord(ctypes.Structure):
    """A call as call.h lays it out."""

    _fields_ = (("operation", ctypes.c_int64), ("arguments", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class Call:
    """One operation to run: its name, its arguments, and what their addresses lead to.

    `shared_bytes` is the memory that the operation asks the run for.
    """

    operation: str
    arguments: ctypes.Structure
    keep: tuple[object, ...] = ()
    shared_bytes: int = 0


class Library:
    """The kernels, loaded.

    `lanes` is how many floats its vectors hold; `note` says what of it is not as it should be,
    if anything.
    """

    def __init__(self, path: Path, note: str = "") -> None:
        """Load a library.  Raises BuildError if it cannot be."""
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise BuildError(
                "cannot load the compiled CPU kernels",
                str(error),
                "is the folder mounted 'noexec'? set XDG_CACHE_HOME to one that is not",
            ) from error
        self.path = path
        self.note = note
        self._library = library
        self.run: Function = library.octavo_run
        self.run.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self.run.restype = None
        self._operation: Function = library.octavo_operation
        self._operation.argtypes = (ctypes.c_char_p,)
        self._operation.restype = ctypes.c_int64
        self._arguments_bytes: Function = library.octavo_arguments_bytes
        self._arguments_bytes.argtypes = (ctypes.c_int64,)
        self._arguments_bytes.restype = ctypes.c_int64
        library.octavo_lanes.restype = ctypes.c_int64
        self.lanes: int = library.octavo_lanes()

    @classmethod
    def load(
        cls,
        options: BuildOptions = NATIVE,
        progress: Progress | None = None,
    ) -> Library:
        """Load the kernels, compiled now if the cache does not hold them.  Raises BuildError."""
        with built(options, progress) as library:
            return cls(library.path, library.note)

    def function(self, name: str) -> Function:
        """Return a function beside the operations, which returns an int64.

        Its arguments are what `ctypes` makes of them: sizes as `c_int64`, addresses as `c_void_p`.
        """
        function = self._library[name]
        function.restype = ctypes.c_int64
        return function

    def operation(self, name: str) -> int:
        """Return the number of an operation.  Raises LookupError if there is none of that name."""
        number: int = self._operation(name.encode())
        if number < 0:
            raise LookupError(f"the CPU kernels have no operation '{name}'")
        return number

    def arguments_bytes(self, name: str) -> int:
        """Return the size of an operation's arguments."""
        size: int = self._arguments_bytes(self.operation(name))
        return size


class Program:
    """A list of calls that runs as one.

    What arguments hold is read when it runs. One thread at a time may run it: its calls write to
    the same tensors, and to the same shared memory.
    """

    def __init__(self, library: Library, calls: Sequence[Call]) -> None:
        """Take calls as they are.

        Raises LookupError for an unknown operation, ValueError for another one's arguments.
        """
        self._calls = tuple(calls)
        self._records = (_CallRecord * len(self._calls))()
        for record, call in zip(self._records, self._calls, strict=True):
            record.operation = library.operation(call.operation)
            wanted = library.arguments_bytes(call.operation)
            if ctypes.sizeof(call.arguments) != wanted:
                raise ValueError(
                    f"'{call.operation}' takes {wanted} bytes of arguments, not"
                    f" {type(call.arguments).__name__}"
                )
            record.arguments = ctypes.addressof(call.arguments)
        shared_bytes = max((call.shared_bytes for call in self._calls), default=0)
        # pages that nothing touches take no memory
        self._memory = np.empty(shared_bytes + _CACHE_LINE_BYTES, np.uint8)
        shared = -(-self._memory.ctypes.data // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES
        self._run = library.run
        self._prepared = (
            ctypes.c_void_p(ctypes.addressof(self._records)),
            ctypes.c_int64(len(self._calls)),
            ctypes.c_void_p(shared),
        )

    def run(self, num_threads: int) -> None:
        """Make the calls in order, on a team of threads, the GIL released."""
        records, count, shared = self._prepared
        self._run(records, count, num_threads, shared)
