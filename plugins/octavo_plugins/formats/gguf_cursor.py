"""Reads primitive values of a GGUF header one after another, never past its end.

Knows bytes, numbers and strings. Does not know which keys or tensors a file should have.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from octavo.errors import ModelLoadError
from octavo_plugins.formats.gguf_types import ARRAY, BOOL, SCALARS, STRING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

    from numpy.typing import NDArray

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")

# Above any vocabulary; a damaged count must not keep anyone waiting.
_MAX_STRINGS: Final = 1 << 23
_MAX_KEY_BYTES: Final = 1 << 16


class StringArray:
    """An array of strings in a mapped header, decoded when asked for.

    A vocabulary has 50,000 to 300,000 of them, and the engine process needs none.
    """

    __slots__ = ("_data", "_key", "_num_strings", "_path", "_start")

    def __init__(
        self, data: memoryview, path: Path, key: str, *, start: int, num_strings: int
    ) -> None:
        self._data = data
        self._path = path
        self._key = key
        self._start = start
        self._num_strings = num_strings

    def __len__(self) -> int:
        return self._num_strings

    def to_list(self) -> list[str]:
        """Return all strings. Raises ModelLoadError if one is not UTF-8."""
        data, position, strings = self._data, self._start, []
        read_length = _U64.unpack_from
        try:
            for _ in range(self._num_strings):
                start = position + 8
                position = start + read_length(data, position)[0]
                strings.append(str(data[start:position], "utf-8"))
        except UnicodeDecodeError as error:
            raise ModelLoadError(
                f"GGUF file '{self._path}' is damaged: a string is not UTF-8",
                f"key '{self._key}', element {len(strings)}: {error}",
            ) from error
        return strings


Value = bool | int | float | str | StringArray | np.ndarray


class Cursor:
    """A position in the bytes of a header. Every read checks what is left first."""

    def __init__(self, data: NDArray[np.uint8], path: Path) -> None:
        self.bytes = data.data
        self.position = 0
        self.path = path

    def fail(self, what: str, *facts: str) -> NoReturn:
        """Raise the one error of this module, with the place in the file."""
        raise ModelLoadError(
            f"GGUF file '{self.path}' cannot be read: {what}",
            *facts,
            f"at byte {self.position} of {len(self.bytes)}",
        )

    def require(self, num_bytes: int, what: str) -> None:
        """Fail unless so many bytes are left."""
        if num_bytes > len(self.bytes) - self.position:
            self.fail(f"it ends inside {what}", "the file is truncated or damaged")

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit number."""
        self.require(4, what)
        (value,) = _U32.unpack_from(self.bytes, self.position)
        self.position += 4
        return int(value)

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit number."""
        self.require(8, what)
        (value,) = _U64.unpack_from(self.bytes, self.position)
        self.position += 8
        return int(value)

    def text(self, what: str, max_bytes: int | None = None) -> str:
        """Read a string: its length, then its bytes."""
        length = self.u64(f"the length of {what}")
        if max_bytes is not None and length > max_bytes:
            self.fail(f"{what} has {length} bytes, more than {max_bytes}")
        self.require(length, what)
        start = self.position
        self.position += length
        try:
            return str(self.bytes[start : self.position], "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not UTF-8", str(error))

    def key(self, index: int) -> str:
        """Read the name of a metadata value."""
        name = self.text(f"the name of metadata value {index}", _MAX_KEY_BYTES)
        if not name:
            self.fail(f"metadata value {index} has an empty name")
        return name

    def value(self, key: str) -> Value:
        """Read one metadata value with its type."""
        number = self.u32(f"the type of '{key}'")
        if number == STRING:
            return self.text(f"'{key}'")
        if number == ARRAY:
            return self._array(key)
        if number not in SCALARS:
            self.fail(
                f"metadata '{key}' has the unknown type {number}",
                f"known are {', '.join(f'{n} ({name})' for n, (name, _) in SCALARS.items())}, "
                f"{STRING} (string), {ARRAY} (array)",
            )
        scalar: int | float = self._numbers(number, 1, key)[0].item()
        return bool(scalar) if number == BOOL else scalar

    def _numbers(self, number: int, count: int, key: str) -> NDArray[np.generic]:
        dtype = np.dtype(SCALARS[number][1])
        self.require(count * dtype.itemsize, f"'{key}'")
        values = np.frombuffer(self.bytes, dtype, count, self.position)
        self.position += count * dtype.itemsize
        return values

    def _array(self, key: str) -> StringArray | NDArray[np.generic]:
        number = self.u32(f"the element type of '{key}'")
        count = self.u64(f"the length of '{key}'")
        if number == STRING:
            return self._strings(key, count)
        if number not in SCALARS:
            self.fail(
                f"metadata '{key}' is an array of type {number}",
                "arrays hold strings or plain numbers",
            )
        values = self._numbers(number, count, key)
        return values.astype(np.bool_) if number == BOOL else values

    def _strings(self, key: str, count: int) -> StringArray:
        if count > _MAX_STRINGS:
            self.fail(f"metadata '{key}' claims {count} strings, more than {_MAX_STRINGS}")
        self.require(8 * count, f"'{key}'")
        start = position = self.position
        read_length = _U64.unpack_from
        data = self.bytes
        try:
            # no check inside this hot loop: a length that leads outside makes the next read fail
            for _ in range(count):
                position += 8 + read_length(data, position)[0]
        except struct.error:
            position = len(data) + 1
        if position > len(data):
            self.fail(f"it ends inside '{key}'", "the file is truncated or damaged")
        self.position = position
        return StringArray(data, self.path, key, start=start, num_strings=count)
