"""The `local` source: folders and files on this machine.

Knows paths. Does not open models.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ModelNotFoundError, did_you_mean
from octavo.interfaces.source import ModelSource
from octavo_plugins.formats.gguf_splits import split_paths
from octavo_plugins.formats.model_files import gguf_models

if TYPE_CHECKING:
    from octavo.interfaces.source import Progress

_PATH_STARTS: Final = ("/", "./", "../", "~")
_MAX_SHOWN: Final = 10


class LocalSource(ModelSource):
    """Takes a reference that is written like a path, or is one that exists."""

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def claims(self, reference: str) -> bool:
        """Return whether the reference is a path."""
        is_written_so = reference.startswith(_PATH_STARTS) or reference in {".", ".."}
        is_file_name = reference.lower().endswith(".gguf") and ":" not in reference
        return is_written_so or is_file_name or (bool(reference) and _exists(reference))

    def resolve(
        self, reference: str, *, revision: str | None = None, progress: Progress | None = None
    ) -> Path:
        """Return the folder, or the GGUF file (the first one of a split model).

        A folder with one GGUF model and no `config.json` means that model. `revision` has no
        meaning here: a path has but one.
        """
        del revision, progress
        path = Path(reference).expanduser()
        if path.is_dir():
            return _model_in(path)
        if path.is_file():
            return split_paths(path)[0]
        if path.exists():
            raise ModelNotFoundError(f"'{reference}' is neither a file nor a folder")
        parent = path.parent
        siblings = sorted(entry.name for entry in parent.iterdir()) if parent.is_dir() else []
        raise ModelNotFoundError(
            f"there is no file or folder '{reference}'",
            did_you_mean(path.name, siblings),
            "" if parent.is_dir() else f"there is no folder '{parent}' either",
            f"looked for '{path.absolute()}'" if not path.is_absolute() else "",
        )


def _exists(reference: str) -> bool:
    """Return whether there is such a path; one that is too long for any is none."""
    try:
        return Path(reference).exists()
    except OSError:
        return False


def _model_in(folder: Path) -> Path:
    """Return the folder itself, or the one GGUF model in it."""
    if (folder / "config.json").exists():
        return folder
    models = gguf_models(entry.name for entry in folder.iterdir())
    if len(models) == 1:
        (files,) = models.values()
        return folder / files[0]
    if not models:
        raise ModelNotFoundError(
            f"folder '{folder}' holds no model",
            "there is neither a config.json nor a GGUF file in it",
        )
    shown = [files[0] for files in models.values()]
    rest = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
    raise ModelNotFoundError(
        f"folder '{folder}' holds {len(models)} GGUF models: name one",
        f"there are {', '.join(shown[:_MAX_SHOWN])}{rest}",
    )
