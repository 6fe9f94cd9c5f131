"""What a model's own `generation_config.json` says: defaults of sampling, and ids that end text.

Knows that file's names. Does not know requests or engines.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, ModelLoadError, RequestError
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "generation_config.json"
#: what `generation_config=` may say beside a folder: follow the model's file, or don't
AUTO = "auto"
OFF = ("none", "vllm")
_SAMPLING_NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """`sampling` holds defaults for fields of `SamplingParams` that a caller leaves unset.

    `max_new_tokens` counts for a request that says nothing of `max_tokens`; it is no ceiling.
    """

    sampling: Mapping[str, Any] = field(default_factory=dict)
    max_new_tokens: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def sampling_params(self) -> SamplingParams:
        """Return the parameters of a caller who gave none."""
        params = SamplingParams(**self.sampling)
        if self.max_new_tokens is not None:
            params.max_tokens = self.max_new_tokens
        return params


def load_generation_defaults(model_path: Path, choice: str = AUTO) -> GenerationDefaults:
    """Return the defaults of a model (a folder, or a file inside one).

    `choice` is "auto" (the model's file), "none" or "vllm" (Octavo's own defaults; ids that end a
    text are read all the same), or a folder that holds the file. Raises ModelLoadError for a
    file that is wrong, ConfigError for a folder without one.
    """
    is_off = choice in OFF
    folder = model_path if model_path.is_dir() else None
    if choice != AUTO and not is_off:
        folder = Path(choice)
        if not (folder / FILE_NAME).is_file():
            raise ConfigError(
                f"no {FILE_NAME} in '{choice}' (generation-config)",
                f"valid: '{AUTO}', '{OFF[0]}', '{OFF[1]}', or a folder with {FILE_NAME}",
            )
    path = folder / FILE_NAME if folder is not None else None
    if path is None or not path.is_file():
        return GenerationDefaults()
    return _defaults(path, _read(path), is_off=is_off)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"cannot read {path}", str(error)) from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} must hold a JSON object, not {type(content).__name__}")
    return content


def _defaults(path: Path, content: Mapping[str, Any], *, is_off: bool) -> GenerationDefaults:
    eos = content.get("eos_token_id")
    eos_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in eos_ids):
        raise ModelLoadError(f"{path}: eos_token_id must be an id or a list of ids, not {eos!r}")
    if is_off:
        return GenerationDefaults(eos_token_ids=tuple(eos_ids))
    names = [name for name in _SAMPLING_NAMES if content.get(name) is not None]
    defaults = GenerationDefaults(
        sampling={name: content[name] for name in names},
        max_new_tokens=content.get("max_new_tokens"),
        eos_token_ids=tuple(eos_ids),
    )
    _check(path, defaults)
    return defaults


def _check(path: Path, defaults: GenerationDefaults) -> None:
    try:
        SamplingParams(**defaults.sampling, max_tokens=defaults.max_new_tokens)
    except RequestError as error:
        raise ModelLoadError(
            f"{path}: {error.headline.replace('max_tokens', 'max_new_tokens')}",
            f"to ignore the file's defaults: generation-config = '{OFF[0]}'",
        ) from error
