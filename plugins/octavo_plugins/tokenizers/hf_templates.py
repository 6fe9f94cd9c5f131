"""Finds the chat templates of a model folder, wherever they are written.

Knows the places that transformers looks in. Does not render templates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelLoadError
from octavo_plugins.formats.json_file import read_optional_json
from octavo_plugins.formats.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILE: Final = "chat_template.jinja"
_FURTHER: Final = "additional_chat_templates"
_OLD_FILE: Final = "chat_template.json"
_MAX_BYTES: Final = 1 << 24


def read_chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the templates by name; the usual one is `default`.

    A file of its own goes before what `tokenizer_config.json` (here `config`) holds.
    """
    templates = _from_value(config.get("chat_template"))
    templates |= _from_value(read_optional_json(folder / _OLD_FILE).get("chat_template"))
    try:
        if (folder / _FILE).exists():
            templates["default"] = _read(folder / _FILE)
        for path in sorted((folder / _FURTHER).glob("*.jinja")):
            templates[path.stem] = _read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"cannot read a chat template in '{folder}'", str(error)) from error
    return templates


def _read(path: Path) -> str:
    return read_regular(path, _MAX_BYTES).decode("utf-8")


def _from_value(value: Any) -> dict[str, str]:
    """Read one template, or a list of named ones."""
    if isinstance(value, str):
        return {"default": value}
    if not isinstance(value, list):
        return {}
    return {
        entry["name"]: entry["template"]
        for entry in value
        if isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("template"), str)
    }
