"""The `hub` source: repositories on the Hugging Face hub, kept in its own cache.

Knows `huggingface_hub`. Does not open models.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import huggingface_hub
from huggingface_hub import errors as hub_errors

from octavo.errors import ModelNotFoundError, did_you_mean
from octavo.interfaces.source import ModelSource
from octavo_plugins.formats.model_files import gguf_models, has_tag, quantization_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from octavo.interfaces.source import Progress

_REFERENCE: Final = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<tag>[\w.-]+))?")
# what a model folder needs beside weights
_FOLDER_FILES: Final = ("*.json", "*.jinja", "tokenizer.model", "*.tiktoken", "*.txt")
_DEFAULT_TAG: Final = "Q4_K_M"
_TIMEOUT_S: Final = 10.0
_MAX_SHOWN: Final = 20

_logger: Final = logging.getLogger(__name__)


class HubSource(ModelSource):
    """Takes `org/repo`, and `org/repo:Q4_K_M` for one of a repository's GGUF models.

    Without the network, whatever is in the hub's cache still works.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def claims(self, reference: str) -> bool:
        """Return whether the reference is written `org/repo` or `org/repo:tag`."""
        return _REFERENCE.fullmatch(reference) is not None

    def resolve(
        self, reference: str, *, revision: str | None = None, progress: Progress | None = None
    ) -> Path:
        """Return the folder of a repository, or the GGUF file that the tag names."""
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise ModelNotFoundError(
                f"'{reference}' is not written as this source reads it",
                "write org/repo, or org/repo:TAG for one of its GGUF models",
            )
        repo, tag = match["repo"], match["tag"]
        if progress is not None:
            progress(f"looking for {repo} on the hub", 0, None)
        names = _list_files(repo, revision)
        if tag is None and "config.json" in names and _has_safetensors(names):
            return _folder(repo, revision, names)
        files = _choose_gguf(reference, tag, names)
        # the hub's library shows the progress of each file by itself
        paths = [_file(repo, revision, name) for name in files]
        return paths[0]


def _has_safetensors(names: Sequence[str]) -> bool:
    return any(name.endswith(".safetensors") for name in names)


def _choose_gguf(reference: str, tag: str | None, names: Sequence[str]) -> list[str]:
    """Return the files of the GGUF model that a tag means, or the usual one without a tag."""
    models = gguf_models(names)
    if not models:
        weights = "GGUF file" if tag else "config.json with safetensors, and no GGUF file"
        raise ModelNotFoundError(
            f"'{reference}' holds no model that can be read",
            f"there is no {weights} in it",
            f"it has {', '.join(names[:_MAX_SHOWN])}" if names else "it is empty",
        )
    if tag is None and len(models) == 1:
        return next(iter(models.values()))
    found = [model for model in models if has_tag(model, tag or _DEFAULT_TAG)]
    # "UD-Q4_K_XL" ends in "Q4_K_XL" too: the exact one goes first
    exact = [m for m in found if (quantization_of(m) or "").lower() == (tag or "").lower()]
    found = exact or found
    if len(found) == 1:
        if tag is None:
            _logger.info("%s: taking the usual %s of %d", reference, found[0], len(models))
        return models[found[0]]
    tags = sorted({quantization_of(model) or model for model in models})
    repo = reference.split(":", maxsplit=1)[0]
    raise ModelNotFoundError(
        f"'{reference}' means {len(found) or 'none'} of the {len(models)} GGUF models there",
        did_you_mean(tag or "", tags),
        f"write {repo}:TAG, where TAG is one of {', '.join(tags[:_MAX_SHOWN])}",
    )


def _list_files(repo: str, revision: str | None) -> list[str]:
    """Return the names of a repository's files: from the hub, or else from its cache."""
    try:
        info = huggingface_hub.HfApi().model_info(repo, revision=revision, timeout=_TIMEOUT_S)
    except Exception as error:  # noqa: BLE001 - the library lets its HTTP client's errors through
        cached = _cached_folder(repo, revision)
        if cached is None:
            _refuse(repo, revision, error)
        _logger.warning("the hub cannot be asked (%s): using its cache of %s", error, repo)
        return [str(p.relative_to(cached)) for p in sorted(cached.rglob("*")) if p.is_file()]
    return [sibling.rfilename for sibling in info.siblings or []]


def _cached_folder(repo: str, revision: str | None) -> Path | None:
    try:
        folder = huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=True)
    except (OSError, ValueError):
        return None
    return Path(folder)


def _folder(repo: str, revision: str | None, names: Sequence[str]) -> Path:
    """Fetch a model folder: its index decides which weights; other formats are left out."""
    weights = ["model.safetensors"]
    if "model.safetensors.index.json" in names:
        weights = ["model-*.safetensors", "model.safetensors.index.json"]
    elif "model.safetensors" not in names:
        weights = ["*.safetensors"]
    try:
        folder = huggingface_hub.snapshot_download(
            repo, revision=revision, allow_patterns=[*_FOLDER_FILES, *weights]
        )
    except Exception as error:  # noqa: BLE001 - the library lets its HTTP client's errors through
        cached = _cached_folder(repo, revision)
        if cached is None:
            _refuse(repo, revision, error)
        return cached
    return Path(folder)


def _file(repo: str, revision: str | None, name: str) -> Path:
    try:
        return Path(huggingface_hub.hf_hub_download(repo, name, revision=revision))
    except Exception as error:  # noqa: BLE001 - the library lets its HTTP client's errors through
        _refuse(repo, revision, error)


def _refuse(repo: str, revision: str | None, error: Exception) -> NoReturn:
    """Say why a repository cannot be had."""
    where = f"'{repo}' at revision '{revision}'" if revision else f"'{repo}'"
    facts = [str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__]
    if isinstance(error, hub_errors.GatedRepoError):
        facts = ["it is gated: accept its terms on its page, then log in with `hf auth login`"]
    elif isinstance(error, hub_errors.RevisionNotFoundError):
        facts = ["there is no such revision"]
    elif isinstance(error, (hub_errors.RepositoryNotFoundError, hub_errors.HFValidationError)):
        facts = [
            "there is no such repository, or it is private and you are not logged in",
            f"there is no folder '{repo}' here either",
        ]
    else:
        facts += [
            "the hub cannot be reached, and its cache does not hold the model",
            f"there is no folder '{repo}' here either",
        ]
    raise ModelNotFoundError(f"cannot get {where} from the Hugging Face hub", *facts) from error
