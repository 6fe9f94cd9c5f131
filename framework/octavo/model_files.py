"""From a model's name to its files: source, weights format, tokenizer.

Asks the components in use, best first, and takes the first that has no reason against.
Imports no torch by itself: a server reads descriptions and tokenizers without it.
Knows components and paths. Does not know any format.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, ModelLoadError, ModelNotFoundError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from octavo.config.resolved import ResolvedComponent, ResolvedConfig
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
    with _architecture_first(config, path):
        return find_format(config, path).open_config(path)


def open_checkpoint(config: ResolvedConfig, path: Path) -> Checkpoint:
    """Open a model's weights (imports torch where the format needs it)."""
    with _architecture_first(config, path):
        return find_format(config, path).open(path)


def architecture_of(
    config: ResolvedConfig, model_config: Mapping[str, Any], path: Path
) -> tuple[str, ResolvedComponent]:
    """Return the first of a model's architectures that a component in use offers, and that one.

    Raises ModelLoadError naming the architecture and those that are known.
    """
    wanted = list(model_config.get("architectures") or ())
    for name in wanted:
        for component in config.offering("architecture", name):
            return name, component
    known = sorted({fact for one in config.active["architecture"] for fact in one.offers})
    name = wanted[0] if wanted else "(none)"
    raise ModelLoadError(
        f"unknown architecture '{name}' (in {path})",
        did_you_mean(name, known),
        f"known: {', '.join(known)}",
    )


@contextmanager
def _architecture_first(config: ResolvedConfig, path: Path) -> Iterator[None]:
    """Of a model that cannot be opened, report an unknown architecture before anything else.

    Whoever is told of missing weights first would fetch them in vain.
    """
    try:
        yield
    except ModelLoadError:
        for one in config.build_all("weights").values():
            with suppress(ModelLoadError):  # not the format of this model's config
                description = one.open_config(path)
                break
        else:
            raise
        architecture_of(config, description.config, path)
        raise


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
