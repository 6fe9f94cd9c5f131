"""Finds the files of a model that is split over several GGUF files.

Such files are called `NAME-00001-of-00003.gguf`, and the first holds the metadata. Knows names
and the `split.*` keys. Does not know tensors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from octavo.errors import ModelLoadError
from octavo_plugins.formats.gguf_header import read_header

if TYPE_CHECKING:
    from pathlib import Path

    from octavo_plugins.formats.gguf_header import GgufHeader

_SPLIT_NAME: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def split_paths(path: Path) -> list[Path]:
    """Return all files of the model that `path` is one file of, in order; [path] if unsplit."""
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    return [
        path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf")
        for number in range(1, count + 1)
    ]


def read_splits(path: Path) -> list[GgufHeader]:
    """Read the headers of all files of a model, the one with the metadata first.

    Raises ModelLoadError naming each missing file, or the file that does not belong here.
    """
    paths = split_paths(path)
    if len(paths) > 1:
        _refuse_missing(path, paths)
    headers = [read_header(part) for part in paths]
    for number, header in enumerate(headers):
        count = header.integer("split.count", 1)
        if max(count, 1) != len(headers) or header.integer("split.no", 0) != number:
            raise ModelLoadError(
                f"GGUF file '{header.path}' is not what its name says",
                f"by its name it is file {number + 1} of {len(headers)}, by its metadata "
                f"({'split.no'}, {'split.count'}) file {header.integer('split.no', 0) + 1} of "
                f"{max(count, 1)}",
                "files of a split model must keep the names NAME-00001-of-00003.gguf",
            )
    _check_tensors(headers)
    return headers


def _refuse_missing(path: Path, paths: list[Path]) -> None:
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        raise ModelLoadError(
            f"GGUF model '{path}' is incomplete: {len(missing)} of its {len(paths)} files are "
            "missing",
            f"missing are {', '.join(missing)}",
        )


def _check_tensors(headers: list[GgufHeader]) -> None:
    found = sum(len(header.tensors) for header in headers)
    expected = headers[0].integer("split.tensors.count", found)
    if found != expected:
        raise ModelLoadError(
            f"GGUF model '{headers[0].path}' should hold {expected} tensors "
            "('split.tensors.count')",
            f"its {len(headers)} files hold {found}",
        )
    seen: dict[str, Path] = {}
    for header in headers:
        for name in header.tensors:
            if name in seen:
                raise ModelLoadError(
                    f"tensor '{name}' is in two files of one GGUF model",
                    f"'{seen[name]}' and '{header.path}'",
                )
            seen[name] = header.path
