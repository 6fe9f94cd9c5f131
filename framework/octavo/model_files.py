"""From a model's name to its files: source, weights format, tokenizer.

Asks the components in use, best first, and takes the first that has no reason against.
Imports no torch by itself: a server reads descriptions and tokenizers without it.
Knows components and paths. Does not know any format.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, ModelLoadError, ModelNotFoundError, did_you_mean

if TYPE_CHECKING:
    from octavo.config.resolved import ResolvedConfig
    from octavo.interfaces.source import Progress
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.interfaces.weights import Checkpoint, ModelDescription, WeightsFormat


def locate_model(config: ResolvedConfig, progress: Progress | None = None) -> Path:
    """Return the local path of the configured model, fetching it if need be.

    Raises ConfigError when no model is configured, ModelNotFoundError when it leads nowhere.
    """
    name = config.model.name
    if name is None:
        raise ConfigError("no model was named", "give a folder, a file, org/repo or an alias")
    return locate(config, name, progress)


def locate(config: ResolvedConfig, name: str, progress: Progress | None = None) -> Path:
    """Return the local path that a reference leads to."""
    sources = config.build_all("source")
    for source in sources.values():
        if source.claims(name):
            path: Path = source.resolve(name, revision=config.model.revision, progress=progress)
            return path
    known = sorted({alias for source in sources.values() for alias in source.known_names()})
    raise ModelNotFoundError(
        f"unknown model {name!r}",
        did_you_mean(name, known),
        f"known names: {', '.join(known)}" if known else "",
        f"asked: {', '.join(sources)}",
        "give a folder, a GGUF file, or org/repo of the hub",
    )


def find_format(config: ResolvedConfig, path: Path) -> WeightsFormat:
    """Return the weights format for a path.

    Raises ModelLoadError with every format's reasons when none can open it.
    """
    return _first_without_reason(config, "weights", config.model.load_format, path)  # type: ignore[no-any-return]


def describe_model(config: ResolvedConfig, path: Path) -> ModelDescription:
    """Read a model's config, generation defaults and where its tokenizer is."""
    return find_format(config, path).open_config(path)


def open_checkpoint(config: ResolvedConfig, path: Path) -> Checkpoint:
    """Open a model's weights (imports torch where the format needs it)."""
    return find_format(config, path).open(path)


def load_tokenizer(config: ResolvedConfig, description: ModelDescription) -> Tokenizer:
    """Load the tokenizer: the configured one, or the model's own."""
    path = description.tokenizer_path
    if config.model.tokenizer is not None:
        path = _tokenizer_at(config, config.model.tokenizer)
    if path is None:
        raise ModelLoadError(
            f"{description.path} has no tokenizer", "name one: --tokenizer PATH_OR_NAME"
        )
    found = _first_without_reason(config, "tokenizer", config.model.tokenizer_mode, path)
    tokenizer: Tokenizer = found.load(path)
    return tokenizer


def _tokenizer_at(config: ResolvedConfig, name: str) -> Path:
    """Return where a named tokenizer is: in a folder of its own, or with the model of that name."""
    folder = Path(name).expanduser()
    readers = config.build_all("tokenizer").values()
    if folder.is_dir() and any(not reader.why_not(folder) for reader in readers):
        return folder
    return locate(config, name)


def _first_without_reason(config: ResolvedConfig, kind: str, wanted: str, path: Path) -> Any:
    """Return the component of a set that can open `path`, asked best first."""
    if wanted != "auto":
        return config.component(kind, wanted).build()
    lines = []
    for name, component in config.build_all(kind).items():
        reasons = component.why_not(path)
        if not reasons:
            return component
        lines.append(f"{name}: {', '.join(reasons)}")
    raise ModelLoadError(f"no {kind} component can open {path}", *lines)
