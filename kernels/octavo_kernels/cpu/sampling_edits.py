"""Edits of logits as records that the kernels read: kept ids, biases, penalties, bans, masks.

Knows arrays and their addresses. Does not know logits, nor what an edit is for.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from octavo_kernels.cpu.calls import SamplingEdit

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_KEEP_ONLY, _ADD, _PENALISE, _BAN, _MASK = range(5)
_FIRST_CAPACITY: Final = 16
_WORD_BITS: Final = 32


class SamplingEdits:
    """A list of edits; those of one row are applied in the order in which they were noted.

    Edits are those of `octavo_kernels.reference.edits`. Arrays are read when the edits are
    applied, and are kept until `clear`.
    """

    def __init__(self) -> None:
        self._records = (SamplingEdit * _FIRST_CAPACITY)()
        self._keep: list[NDArray[Any]] = []
        self._ids: list[NDArray[np.int64]] = []
        self._mask_words: set[int] = set()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._ids)

    @property
    def address(self) -> int:
        """Return where the first record lies, until the next is noted."""
        return ctypes.addressof(self._records)

    def clear(self) -> None:
        """Forget all."""
        self._keep.clear()
        self._ids.clear()
        self._mask_words.clear()

    def check_masks(self, width: int) -> None:
        """Raise ValueError if a mask is of another vocabulary than one of `width` tokens."""
        wrong = self._mask_words - {-(-width // _WORD_BITS)}
        if wrong:
            raise ValueError(f"a mask of {width} tokens has not {min(wrong)} words")

    def check_ids(self, width: int) -> None:
        """Raise ValueError if an id is outside a vocabulary of `width` tokens."""
        for ids in self._ids:
            if len(ids) and (ids.min() < 0 or ids.max() >= width):
                raise ValueError(
                    f"token ids must be from 0 up to {width}, not {ids.min()} to {ids.max()}"
                )

    def keep_only(self, row: int, ids: ArrayLike) -> None:
        """Set all logits of a row to -inf except those of ids [n]."""
        self._note(_KEEP_ONLY, row, ids)

    def add(self, row: int, ids: ArrayLike, adds: ArrayLike) -> None:
        """Add adds [n] to the logits of ids [n], which may repeat."""
        self._note(_ADD, row, ids).adds = self._address(adds, np.float32)

    def penalise(
        self, row: int, ids: ArrayLike, output_counts: ArrayLike, strengths: tuple[float, ...]
    ) -> None:
        """Penalise ids [n], distinct, that stand output_counts [n] times in the output.

        `strengths`: of repetition, frequency, presence.
        """
        record = self._note(_PENALISE, row, ids)
        record.counts = self._address(output_counts, np.int32)
        record.repetition, record.frequency, record.presence = strengths

    def ban(self, row: int, ids: ArrayLike) -> None:
        """Set the logits of ids [n] to -inf."""
        self._note(_BAN, row, ids)

    def keep_masked(self, row: int, mask: ArrayLike) -> None:
        """Set all logits to -inf except those whose bits are set: uint32 [ceil(vocab / 32)].

        Masks come after all other edits, whenever they are noted.
        """
        self._note(_MASK, row, ()).mask = self._address(mask, np.uint32)
        self._mask_words.add(len(self._keep[-1]))

    def _note(self, kind: int, row: int, ids: ArrayLike) -> SamplingEdit:
        count = len(self._ids)
        if count == len(self._records):
            records = (SamplingEdit * (2 * count))()
            ctypes.memmove(records, self._records, ctypes.sizeof(self._records))
            self._records = records
        self._ids.append(np.ascontiguousarray(ids, np.int64))
        record = self._records[count]
        record.row, record.kind, record.count = row, kind, len(self._ids[-1])
        record.ids = self._ids[-1].ctypes.data
        return record

    def _address(self, values: ArrayLike, dtype: type[np.generic]) -> int:
        array = np.ascontiguousarray(values, dtype)
        self._keep.append(array)
        return int(array.ctypes.data)
