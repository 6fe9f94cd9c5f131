"""Draws tokens and computes log-probabilities by the CPU kernels, many rows in one call.

What is drawn is said in `octavo_kernels.reference.sampling`, down to rounding. Knows logits and
parameters by row. Does not know requests, history or seeds.
"""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from octavo_kernels.cpu.calls import Logprobs as LogprobArguments
from octavo_kernels.cpu.calls import Sample as SampleArguments
from octavo_kernels.cpu.library import Call, Program
from octavo_kernels.reference.logprobs import Logprobs

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from octavo_kernels.cpu.library import Library
    from octavo_kernels.cpu.sampling_edits import SamplingEdits
    from octavo_kernels.reference.sampling import SamplingRows

#: fewer logits than so many are one thread's: waiting for another may take longer than they do
_SHARED_LOGITS: Final = 1 << 16
_UNKNOWN_ID: Final = 2  # in `is_bad`: an edit named an id outside the vocabulary


class Sampler:
    """Draws from logits on a team of threads.

    A row's result depends on that row alone, bit for bit, whatever shares the call and however
    many threads there are. One thread at a time may use it: memory is kept from call to call.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._uniforms = library.function("octavo_uniforms")
        self._sampling: _Sampling | None = None
        self._scoring: _Scoring | None = None

    def sample(
        self, logits: Tensor, rows: SamplingRows, edits: SamplingEdits, num_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Edit logits [rows, vocab] in place, and draw one token id from each row.

        Returns ids int64 [rows], and which rows are bad, bool [rows]: those that hold NaN or +inf,
        or nothing but -inf. A bad row's id is 0. Raises ValueError for an edit that names an id
        outside the vocabulary, when others may have been made, and for a mask of another one.
        """
        num_rows, width = _shape(logits)
        if self._sampling is None or not self._sampling.fits(num_rows, width):
            self._sampling = _Sampling(self._library, _capacity(num_rows), width)
        return self._sampling.run(logits, rows, edits, _threads(num_rows * width, num_threads))

    def logprobs(
        self,
        logits: Tensor,
        rows: NDArray[np.integer],
        token_ids: NDArray[np.integer],
        num_top: NDArray[np.integer],
        num_threads: int,
    ) -> Logprobs:
        """Return log-softmax values of n wanted rows, as `octavo_kernels.reference.logprobs`.

        Raises ValueError for a row or a token that there is not.
        """
        num_rows, width = _shape(logits)
        _check_range("rows", rows, num_rows)
        _check_range("token ids", token_ids, width)
        if self._scoring is None or not self._scoring.fits(len(rows), width):
            self._scoring = _Scoring(self._library, _capacity(len(rows)), width)
        threads = _threads(len(rows) * width, num_threads)
        return self._scoring.run(logits, (rows, token_ids, num_top), threads)

    def uniforms(
        self,
        seeds: NDArray[np.uint64],
        positions: NDArray[np.int64],
        choices: NDArray[np.int64],
        purpose: int,
    ) -> NDArray[np.float64]:
        """Return noise in [0, 1), float64 [n], as `octavo_kernels.reference.noise`."""
        out = np.empty(len(seeds))
        arrays = (
            np.ascontiguousarray(seeds, np.uint64),
            np.ascontiguousarray(positions, np.int64),
            np.ascontiguousarray(choices, np.int64),
        )
        addresses = [c_void_p(array.ctypes.data) for array in arrays]
        self._uniforms(*addresses, c_int64(purpose), c_int64(len(out)), c_void_p(out.ctypes.data))
        return out


class _Sampling:
    """The arguments of `sample` for at most so many rows of one width, and what they lead to."""

    def __init__(self, library: Library, max_rows: int, width: int) -> None:
        self._max_rows, self._width = max_rows, width
        self._counts = np.zeros(2, np.int64)  # rows, edits
        self._temperature = np.empty(max_rows, np.float32)
        self._top_k = np.empty(max_rows, np.int32)
        self._top_p = np.empty(max_rows)
        self._min_p = np.empty(max_rows)
        self._uniforms = np.empty(max_rows)
        self._ids = np.empty(max_rows, np.int64)
        self._is_bad = np.empty(max_rows, np.uint8)
        self._arguments = SampleArguments(
            rows=_address(self._counts),
            num_edits=_address(self._counts[1:]),
            temperature=_address(self._temperature),
            top_k=_address(self._top_k),
            top_p=_address(self._top_p),
            min_p=_address(self._min_p),
            uniforms=_address(self._uniforms),
            ids=_address(self._ids),
            is_bad=_address(self._is_bad),
            width=width,
        )
        self._program = _program(library, "sample", self._arguments, max_rows)

    def fits(self, num_rows: int, width: int) -> bool:
        return num_rows <= self._max_rows and width == self._width

    def run(
        self, logits: Tensor, rows: SamplingRows, edits: SamplingEdits, num_threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        edits.check_masks(self._width)
        count = len(logits)
        self._temperature[:count] = rows.temperature
        self._top_k[:count] = rows.top_k
        self._top_p[:count] = rows.top_p
        self._min_p[:count] = rows.min_p
        self._uniforms[:count] = rows.uniforms
        self._counts[:] = count, len(edits)
        self._arguments.logits, self._arguments.stride = logits.data_ptr(), logits.stride(0)
        self._arguments.edits = edits.address
        self._program.run(num_threads)
        is_bad = self._is_bad[:count]
        if len(edits) and (is_bad == _UNKNOWN_ID).any():
            edits.check_ids(self._width)
        return self._ids[:count].copy(), is_bad.astype(np.bool_)


class _Scoring:
    """The arguments of `logprobs` for at most so many entries, and what they lead to."""

    def __init__(self, library: Library, max_entries: int, width: int) -> None:
        self._max_entries, self._width = max_entries, width
        self._count = np.zeros(1, np.int64)
        self._rows = np.empty(max_entries, np.int64)
        self._token_ids = np.empty(max_entries, np.int64)
        self._num_top = np.empty(max_entries, np.int64)
        self._starts = np.zeros(max_entries + 1, np.int64)
        self._chosen = np.empty(max_entries, np.float32)
        self._ranks = np.empty(max_entries, np.int64)
        self._arguments = LogprobArguments(
            entries=_address(self._count),
            rows=_address(self._rows),
            token_ids=_address(self._token_ids),
            num_top=_address(self._num_top),
            starts=_address(self._starts),
            chosen=_address(self._chosen),
            ranks=_address(self._ranks),
            width=width,
        )
        self._program = _program(library, "logprobs", self._arguments, max_entries)

    def fits(self, num_entries: int, width: int) -> bool:
        return num_entries <= self._max_entries and width == self._width

    def run(
        self, logits: Tensor, wanted: tuple[NDArray[np.integer], ...], num_threads: int
    ) -> Logprobs:
        count, width = len(wanted[0]), self._width
        self._count[0] = count
        self._rows[:count], self._token_ids[:count] = wanted[0], wanted[1]
        num_top, starts = self._num_top[:count], self._starts[: count + 1]
        num_top[:] = np.where(wanted[2] < 0, width, np.minimum(wanted[2], width))
        np.cumsum(num_top, out=starts[1:])
        ends = starts.tolist()
        top_ids, top_logprobs = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.float32)
        arguments = self._arguments
        arguments.logits, arguments.stride = logits.data_ptr(), logits.stride(0)
        arguments.top_ids, arguments.top_logprobs = _address(top_ids), _address(top_logprobs)
        self._program.run(num_threads)
        pairs = list(pairwise(ends))
        return Logprobs(
            self._chosen[:count].copy(),
            self._ranks[:count].copy(),
            [top_ids[start:end] for start, end in pairs],
            [top_logprobs[start:end] for start, end in pairs],
        )


def _program(library: Library, operation: str, arguments: Any, max_rows: int) -> Program:
    sizes = c_int64(max_rows), c_int64(arguments.width)
    shared_bytes = library.function("octavo_sampling_bytes")(*sizes)
    return Program(library, [Call(operation, arguments, (), shared_bytes)])


def _threads(num_logits: int, num_threads: int) -> int:
    return num_threads if num_logits >= _SHARED_LOGITS else 1


def _capacity(num_rows: int) -> int:
    """Return a number of rows that need not grow with each larger batch."""
    return 1 << max(num_rows - 1, 7).bit_length()


def _shape(logits: Tensor) -> tuple[int, int]:
    """Return the shape of logits; ValueError if they are not what the kernels read."""
    num_rows, width = logits.shape
    is_in_one_piece = logits.stride(1) == 1 or num_rows == 0
    if logits.dtype != torch.float32 or not is_in_one_piece or width == 0:
        raise ValueError(
            "logits must be float32 [rows, vocab], vocab > 0, each row in one piece, not "
            f"{logits.dtype} {tuple(logits.shape)} of strides {logits.stride()}"
        )
    return num_rows, width


def _check_range(what: str, values: NDArray[np.integer], end: int) -> None:
    if len(values) and (values.min() < 0 or values.max() >= end):
        raise ValueError(f"{what} must be from 0 up to {end}, not {values.min()} to {values.max()}")


def _address(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)
