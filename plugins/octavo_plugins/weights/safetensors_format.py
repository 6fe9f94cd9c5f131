"""The `safetensors` weights format: a Hugging Face folder with one file, or shards and an index.

Knows which files belong to the model. Does not know what the tensors are for.
"""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelLoadError, did_you_mean
from octavo.interfaces.weights import (
    Checkpoint,
    ModelDescription,
    WeightBlocks,
    WeightsFormat,
)
from octavo_plugins.formats.json_file import read_json_object, read_optional_json
from octavo_plugins.formats.safetensors_header import read_safetensors
from octavo_plugins.weights.bare_models import whole_names
from octavo_plugins.weights.hf_config import (
    CONFIG,
    describe_folder,
    quantization_method,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from octavo_plugins.formats.safetensors_header import SafetensorsFile, StoredTensor

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
_MAX_NAMES_SHOWN: Final = 6

# the file's names of dtypes -> block types
_BLOCK_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {name: name for name in ("F32", "F16", "BF16")}
)


class SafetensorsFormat(WeightsFormat):
    """Opens Hugging Face folders."""

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def why_not(self, path: Path) -> list[str]:
        """Return why `path` is no folder with a config and safetensors."""
        if not path.is_dir():
            return [f"'{path}' is no folder"]
        reasons = []
        if not (path / CONFIG).exists():
            reasons.append(f"'{path}' has no {CONFIG}")
        if not (path / INDEX).exists() and not (path / SINGLE).exists():
            pickles = any(path.glob("*.bin")) or any(path.glob("*.pt*"))
            hint = ", only pickled PyTorch files, which are not loaded" if pickles else ""
            reasons.append(f"'{path}' has neither {INDEX} nor {SINGLE}{hint}")
        if not reasons:
            method = quantization_method(read_optional_json(path / CONFIG))
            if method is not None:
                reasons.append(f"its weights are quantised with {method}")
        return reasons

    def open(self, path: Path) -> SafetensorsCheckpoint:
        """Open a folder, reading the headers of all files that its index names."""
        return SafetensorsCheckpoint(path)

    def open_config(self, path: Path) -> ModelDescription:
        """Read the JSON files alone."""
        return describe_folder(path)


class SafetensorsCheckpoint(Checkpoint):
    """An opened folder. All blocks are views of the mapped files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(describe_folder(folder))
        self._places: dict[str, tuple[SafetensorsFile, StoredTensor]] = {}
        files = {name: file for file, tensor_names in _open_files(folder) for name in tensor_names}
        for name, stored in whole_names(files).items():
            self._places[name] = (files[stored], files[stored].tensors[stored])
        self._is_closed = False

    def names(self) -> list[str]:
        """Return the names of all tensors."""
        return list(self._places)

    def blocks(self, name: str) -> WeightBlocks:
        """Return one tensor's blocks."""
        if self._is_closed:
            raise ModelLoadError(f"cannot read '{name}': '{self.path}' was closed")
        place = self._places.get(name)
        if place is None:
            raise ModelLoadError(
                f"there is no tensor '{name}' in '{self.path}'",
                did_you_mean(name, self._places),
                f"it has {len(self._places)} tensors",
            )
        file, tensor = place
        block_type = _BLOCK_TYPES.get(tensor.dtype)
        if block_type is None:
            raise ModelLoadError(
                f"tensor '{name}' is of type {tensor.dtype}, which is not supported",
                f"file '{file.path}'",
                f"supported are {', '.join(_BLOCK_TYPES)}",
            )
        return WeightBlocks(name, block_type, tensor.shape, file.rows(tensor), str(file.path))

    def close(self) -> None:
        """Let go of the files; blocks that were handed out keep what they view."""
        self._places = {}
        self._is_closed = True


def _open_files(folder: Path) -> list[tuple[SafetensorsFile, Sequence[str]]]:
    """Open the files of a folder, each with the tensors that are to be read from it.

    The index alone says which files belong to the model: whatever else lies in the folder (a
    stray `model.safetensors`, an optimizer's state) is left alone.
    """
    if not (folder / INDEX).exists():
        single = folder / SINGLE
        if not single.exists():
            raise ModelLoadError(f"'{folder}' has neither {INDEX} nor {SINGLE}")
        file = read_safetensors(single)
        return [(file, list(file.tensors))]
    by_file = _read_index(folder / INDEX)
    _refuse_missing(folder, by_file)
    indexed = {name for names in by_file.values() for name in names}
    opened: list[tuple[SafetensorsFile, Sequence[str]]] = []
    for file_name, names in by_file.items():
        file = _open_shard(folder / file_name, names)
        # what the index forgot is still there, for the loader to warn of
        forgotten = [name for name in file.tensors if name not in indexed]
        opened.append((file, [*names, *forgotten]))
    return opened


def _read_index(path: Path) -> dict[str, list[str]]:
    """Return the tensors of each file that an index names."""
    weight_map = read_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"'{path}' has no 'weight_map'", "it must say where each tensor is")
    by_file: dict[str, list[str]] = defaultdict(list)
    for name, file_name in weight_map.items():
        is_plain = isinstance(file_name, str) and file_name not in {"", ".", ".."}
        if not is_plain or "/" in file_name or "\\" in file_name:
            raise ModelLoadError(
                f"'{path}' says that tensor '{name}' is in {file_name!r}",
                "files must lie beside the index, and be named without a folder",
            )
        by_file[file_name].append(name)
    return dict(by_file)


def _refuse_missing(folder: Path, by_file: Mapping[str, Sequence[str]]) -> None:
    missing = [file_name for file_name in by_file if not (folder / file_name).is_file()]
    if missing:
        raise ModelLoadError(
            f"the checkpoint '{folder}' is incomplete: {len(missing)} of {len(by_file)} files are "
            "missing",
            *(f"{name}, which holds {_listed(by_file[name])}" for name in missing),
            f"'{INDEX}' names them; fetch them, or the whole folder, again",
        )


def _open_shard(path: Path, names: Sequence[str]) -> SafetensorsFile:
    try:
        file = read_safetensors(path)
    except ModelLoadError as error:
        raise ModelLoadError(
            error.headline, *error.facts, f"it should hold {_listed(names)}"
        ) from error
    absent = [name for name in names if name not in file.tensors]
    if absent:
        raise ModelLoadError(
            f"'{path}' lacks {len(absent)} tensors that '{INDEX}' says it holds",
            f"absent are {_listed(absent)}",
        )
    return file


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_MAX_NAMES_SHOWN])
    rest = len(names) - _MAX_NAMES_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
