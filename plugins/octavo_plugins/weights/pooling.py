"""How the files of a model say that vectors are made of its hidden states.

Folders say it as sentence-transformers writes them, GGUF files in their metadata.

Knows these files' words. Does not know which ways of pooling can be done.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelLoadError
from octavo.interfaces.weights import PoolingDescription
from octavo_plugins.formats.json_file import read_optional_json
from octavo_plugins.formats.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from octavo_plugins.formats.gguf_header import GgufHeader

_MODULES: Final = "modules.json"
_FOLDER: Final = "1_Pooling"
_MAX_BYTES: Final = 1 << 20
_PREFIX: Final = "pooling_mode_"
#: sentence-transformers' words, and ours
_MODES: Final[Mapping[str, str]] = MappingProxyType(
    {"lasttoken": "last", "mean_tokens": "mean", "mean": "mean", "cls_token": "cls"}
)
#: llama.cpp's `llama_pooling_type`; 0 is none
_GGUF_MODES: Final[Mapping[int, str]] = MappingProxyType(
    {1: "mean", 2: "cls", 3: "last", 4: "rank"}
)
#: modules that are no step behind the model, or that are looked at by themselves
_KNOWN: Final = frozenset({"Transformer", "Pooling", "Normalize"})


def folder_pooling(folder: Path) -> PoolingDescription | None:
    """Return what a folder says of pooling; None when it says nothing.

    A module between pooling and the vector that nobody here computes is part of the mode's name.
    """
    modules = _modules(folder / _MODULES)
    names = [str(one.get("type", "")).rpartition(".")[2] for one in modules]
    places = [
        PurePosixPath(str(one.get("path", ""))).name
        for one, name in zip(modules, names, strict=True)
        if name == "Pooling"
    ]
    content = read_optional_json(folder / (places[0] if places else _FOLDER) / "config.json")
    if not content:
        return None
    others = [name for name in names if name not in _KNOWN]
    return PoolingDescription(
        " with ".join([_mode_of(content), *others]), not modules or "Normalize" in names
    )


def gguf_pooling(header: GgufHeader, architecture: str) -> PoolingDescription | None:
    """Return what a GGUF file says of pooling; None when it says nothing."""
    number = header.integer(f"{architecture}.pooling_type", 0)
    if number == 0:
        return None
    return PoolingDescription(_GGUF_MODES.get(number, f"GGUF's number {number}"))


def _mode_of(content: Mapping[str, Any]) -> str:
    """Return the way in which a Pooling module pools; several join their vectors."""
    named = content.get("pooling_mode")
    listed = named if isinstance(named, list) else [named]
    words = [str(one) for one in listed if one is not None]
    words += [
        name.removeprefix(_PREFIX)
        for name, is_on in content.items()
        if name.startswith(_PREFIX) and is_on is True
    ]
    return " and ".join(dict.fromkeys(_MODES.get(one, one) for one in words)) or "mean"


def _modules(path: Path) -> list[dict[str, Any]]:
    """Return the modules of a sentence-transformers model, in their order."""
    if not path.exists():
        return []
    try:
        content = json.loads(read_regular(path, _MAX_BYTES).decode("utf-8"))
    except OSError as error:
        raise ModelLoadError(f"cannot read '{path}'", f"{error.strerror or error}") from error
    except ValueError as error:  # not JSON, or not UTF-8
        raise ModelLoadError(f"'{path}' is no valid JSON", str(error)) from error
    if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
        raise ModelLoadError(f"'{path}' must hold a JSON list of objects")
    return content
