"""Reads JSON objects from files, with errors that name the file.

Knows JSON. Does not know what is in it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelLoadError
from octavo_plugins.formats.regular_file import read_regular

if TYPE_CHECKING:
    from pathlib import Path

#: an index of all tensors is the longest of them
_MAX_BYTES: Final = 1 << 28


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a file. Raises ModelLoadError if there is none."""
    try:
        content = json.loads(read_regular(path, _MAX_BYTES).decode("utf-8"))
    except OSError as error:
        raise ModelLoadError(f"cannot read '{path}'", f"{error.strerror or error}") from error
    except ValueError as error:  # not JSON, or not UTF-8
        raise ModelLoadError(f"'{path}' is no valid JSON", str(error)) from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"'{path}' must hold a JSON object, not a {type(content).__name__}")
    return content


def read_optional_json(path: Path) -> dict[str, Any]:
    """Return the object in a file, or an empty one if there is no such file."""
    return read_json_object(path) if path.exists() else {}
