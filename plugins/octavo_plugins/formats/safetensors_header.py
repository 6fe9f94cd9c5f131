"""Reads one safetensors file: checks it with the library, and finds where each tensor lies.

The library checks the whole header against the file's size, but gives tensors only to frameworks
that know their dtype; NumPy knows no bfloat16. The header itself is eight bytes of length and a
JSON object, so that the offsets are read from it directly, without importing torch.

Knows the container. Does not know indexes, configs or models.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from safetensors import SafetensorError, deserialize, safe_open

from octavo.errors import ModelLoadError
from octavo_plugins.formats.mapped_file import map_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor: its dtype as the file names it, its shape, and its bytes in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """One file, mapped."""

    path: Path
    tensors: Mapping[str, StoredTensor]
    data: NDArray[np.uint8]

    def rows(self, tensor: StoredTensor) -> NDArray[np.uint8]:
        """Return a tensor's bytes, uint8 [rows, bytes per row], without copying."""
        num_rows = math.prod(tensor.shape[:-1])
        row_bytes = (tensor.stop - tensor.start) // max(num_rows, 1)
        return self.data[tensor.start : tensor.stop].reshape(num_rows, row_bytes)


@dataclass(frozen=True, slots=True)
class LoadedTensor:
    """One tensor of a file that was read as a whole: dtype as the file names it, shape, bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray


def parse_safetensors(path: Path, content: bytes) -> Mapping[str, LoadedTensor]:
    """Return the tensors of a file's content. Raises ModelLoadError naming `path` and the fault."""
    try:
        entries = deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise _invalid(path, error, len(content)) from error
    return {
        name: LoadedTensor(entry["dtype"], tuple(entry["shape"]), entry["data"])
        for name, entry in entries
    }


def read_safetensors(path: Path) -> SafetensorsFile:
    """Map a file and read its header. Raises ModelLoadError naming the file and the fault."""
    data = map_file(path)
    try:
        with safe_open(path, "numpy"):
            pass  # opening checks the header
    except (SafetensorError, OSError) as error:
        raise _invalid(path, error, len(data)) from error
    header_bytes = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    base = _LENGTH_BYTES + header_bytes
    header = json.loads(data[_LENGTH_BYTES:base].tobytes())
    header.pop("__metadata__", None)
    tensors = {
        name: StoredTensor(
            entry["dtype"],
            tuple(entry["shape"]),
            base + entry["data_offsets"][0],
            base + entry["data_offsets"][1],
        )
        for name, entry in header.items()
    }
    return SafetensorsFile(path, tensors, data)


def _invalid(path: Path, error: Exception, num_bytes: int) -> ModelLoadError:
    return ModelLoadError(
        f"'{path}' is no valid safetensors file",
        str(error),
        f"it has {num_bytes} bytes; if that is too few, fetch or copy it again",
    )
