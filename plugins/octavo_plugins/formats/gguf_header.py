"""Reads and checks the header of a GGUF file: metadata and where each tensor lies.

Source: the GGUF specification, versions 2 and 3. An own reader, because it takes a few
hundredths of a second where the `gguf` package takes four seconds.

Knows the container. Does not know architectures, tokenizers, or how a block is decoded.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from octavo.errors import ModelLoadError
from octavo_plugins.formats.gguf_cursor import Cursor, StringArray
from octavo_plugins.formats.gguf_types import TENSOR_TYPES
from octavo_plugins.formats.mapped_file import map_file
from octavo_plugins.formats.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)

_DEFAULT_ALIGNMENT: Final = 32
_MAX_ALIGNMENT: Final = 1 << 20
_MAX_DIMENSIONS: Final = 4
_MAX_NAME_BYTES: Final = 255
# the fewest bytes that one metadata value and one tensor description can take
_MIN_VALUE_BYTES: Final = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES: Final = 8 + 1 + 4 + 8 + 4 + 8

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies. `shape` is logical, row-major; `offset` counts from the file's start.

    Shape, type and place were checked against the file's size.
    """

    name: str
    type_name: str
    shape: tuple[int, ...]
    row_bytes: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of one file. `data` is the whole file, mapped."""

    path: Path
    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    data: NDArray[np.uint8]
    spans: Mapping[str, tuple[int, int]]

    def rows(self, info: TensorInfo) -> NDArray[np.uint8]:
        """Return a tensor's bytes, uint8 [rows, bytes per row], without copying."""
        end = info.offset + info.num_bytes
        return self.data[info.offset : end].reshape(-1, info.row_bytes)

    def fingerprint(self, prefix: str) -> str:
        """Return a hash of all metadata whose key starts with `prefix`."""
        digest = hashlib.sha256()
        for key, (start, end) in self.spans.items():
            if key.startswith(prefix):
                digest.update(self.data[start:end].data)
        return digest.hexdigest()

    def text(self, key: str, default: _T) -> str | _T:
        """Return a string of the metadata, or the default if it is not there."""
        value: str | _T = self._typed(key, default, str, "a string")
        return value

    def integer(self, key: str, default: _T) -> int | _T:
        """Return a whole number of the metadata, or the default if it is not there."""
        value: int | _T = self._typed(key, default, int, "a whole number")
        return value

    def flag(self, key: str, default: _T) -> bool | _T:
        """Return a bool of the metadata, or the default if it is not there."""
        value: bool | _T = self._typed(key, default, bool, "a bool")
        return value

    def number(self, key: str, default: _T) -> float | _T:
        """Return a number of the metadata, or the default if it is not there."""
        value = self._typed(key, default, (int, float), "a number")
        return float(value) if isinstance(value, int) else value

    def strings(self, key: str) -> list[str] | None:
        """Return an array of strings of the metadata, or None if it is not there."""
        value = self._typed(key, None, StringArray, "an array of strings")
        return None if value is None else value.to_list()

    def _typed(self, key: str, default: Any, types: Any, expected: str) -> Any:
        value = self.metadata.get(key)
        if value is None:
            return default
        # True is an int to Python, and not to anyone who wrote a file
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise ModelLoadError(
                f"GGUF file '{self.path}': '{key}' must be {expected}",
                f"it is of type {type(value).__name__}",
            )
        return value


def reasons_no_gguf(path: Path) -> list[str]:
    """Return why `path` is no GGUF file; none means that it begins like one."""
    if not path.is_file():
        return [f"'{path}' is no file"]
    if not is_gguf(path):
        return [f"'{path}' does not start like a GGUF file"]
    return []


def is_gguf(path: Path) -> bool:
    """Return whether a file starts like a GGUF file; False if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> GgufHeader:
    """Map a GGUF file and read its header.

    Everything that later code relies on is checked here: counts, types, alignment, and that each
    tensor lies inside the file. Raises ModelLoadError naming the file and what is wrong.
    """
    data = map_file(path)
    cursor = Cursor(data, path)
    version = _read_version(cursor)
    num_tensors = _read_count(cursor, "tensors", _MIN_TENSOR_BYTES)
    num_values = _read_count(cursor, "metadata values", _MIN_VALUE_BYTES)
    metadata, spans = _read_metadata(cursor, num_values)
    tensors = _read_tensors(cursor, num_tensors, _alignment(cursor, metadata))
    return GgufHeader(path, version, metadata, tensors, data, spans)


def _read_version(cursor: Cursor) -> int:
    magic = bytes(cursor.bytes[:4])
    if magic != MAGIC:
        cursor.fail("it is no GGUF file", f"it starts with {magic!r}, not with {MAGIC!r}")
    cursor.position = 4
    version = cursor.u32("the version")
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        cursor.fail("it is big-endian", "only little-endian files are supported")
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        cursor.fail(f"its version is {version}", f"supported are {known}")
    return version


def _read_count(cursor: Cursor, what: str, min_bytes: int) -> int:
    count = cursor.u64(f"the number of {what}")
    left = len(cursor.bytes) - cursor.position
    if count * min_bytes > left:
        cursor.fail(
            f"it claims {count} {what}",
            f"at {min_bytes} bytes each they do not fit the {left} bytes that are left",
        )
    return count


def _read_metadata(
    cursor: Cursor, num_values: int
) -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
    metadata: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    for index in range(num_values):
        start = cursor.position
        key = cursor.key(index)
        if key in metadata:
            cursor.fail(f"metadata '{key}' is there twice")
        metadata[key] = cursor.value(key)
        spans[key] = (start, cursor.position)
    return metadata, spans


def _alignment(cursor: Cursor, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    is_valid = isinstance(alignment, int) and 0 < alignment <= _MAX_ALIGNMENT
    if not is_valid or alignment & (alignment - 1):
        cursor.fail(
            f"'general.alignment' is {alignment}",
            f"it must be a power of two up to {_MAX_ALIGNMENT}",
        )
    return int(alignment)


def _read_tensors(cursor: Cursor, num_tensors: int, alignment: int) -> dict[str, TensorInfo]:
    raw = [_read_tensor(cursor, index) for index in range(num_tensors)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for info in raw:
        if info.name in tensors:
            cursor.fail(f"tensor '{info.name}' is there twice")
        tensors[info.name] = _placed(cursor, info, data_start, alignment)
    _check_overlap(cursor, tensors)
    return tensors


def _read_tensor(cursor: Cursor, index: int) -> TensorInfo:
    """Read one description; its offset still counts from the start of the data."""
    name = cursor.text(f"the name of tensor {index}", _MAX_NAME_BYTES)
    if not name:
        cursor.fail(f"tensor {index} has an empty name")
    num_dimensions = cursor.u32(f"the dimensions of tensor '{name}'")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        cursor.fail(f"tensor '{name}' has {num_dimensions} dimensions, not 1 to {_MAX_DIMENSIONS}")
    # the file has columns first, we have them last
    shape = tuple(cursor.u64(f"the shape of tensor '{name}'") for _ in range(num_dimensions))[::-1]
    number = cursor.u32(f"the type of tensor '{name}'")
    block_type = TENSOR_TYPES.get(number)
    if block_type is None:
        known = ", ".join(f"{n} ({t.name})" for n, t in TENSOR_TYPES.items())
        cursor.fail(f"tensor '{name}' has the unknown type {number}", f"known are {known}")
    offset = cursor.u64(f"the offset of tensor '{name}'")
    if 0 in shape or shape[-1] % block_type.group:
        cursor.fail(
            f"tensor '{name}' has the shape {list(shape)}",
            f"no dimension may be 0, and columns of {block_type.name} come in groups of "
            f"{block_type.group}",
        )
    row_bytes = block_type.row_bytes(shape[-1])
    num_bytes = row_bytes * math.prod(shape[:-1])
    return TensorInfo(name, block_type.name, shape, row_bytes, offset, num_bytes)


def _placed(cursor: Cursor, info: TensorInfo, data_start: int, alignment: int) -> TensorInfo:
    """Return the tensor with its offset from the start of the file, checked."""
    if info.offset % alignment:
        cursor.fail(
            f"tensor '{info.name}' lies at offset {info.offset}",
            f"offsets must be multiples of {alignment}",
        )
    offset = data_start + info.offset
    if offset + info.num_bytes > len(cursor.bytes):
        cursor.fail(
            f"tensor '{info.name}' ends outside the file",
            f"{info.type_name} {list(info.shape)} takes bytes {offset} to "
            f"{offset + info.num_bytes}",
            f"the file has {len(cursor.bytes)} bytes: it is truncated, or its header is damaged",
        )
    return TensorInfo(info.name, info.type_name, info.shape, info.row_bytes, offset, info.num_bytes)


def _check_overlap(cursor: Cursor, tensors: Mapping[str, TensorInfo]) -> None:
    end, last = 0, ""
    for info in sorted(tensors.values(), key=lambda info: info.offset):
        if info.offset < end:
            cursor.fail(f"tensors '{last}' and '{info.name}' overlap in the file")
        end, last = info.offset + info.num_bytes, info.name
