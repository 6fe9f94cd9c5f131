"""What a model itself says of its use: defaults of sampling, ends of texts, ways of pooling.

Knows the names in `generation_config.json` and `config.json`. Does not know where they were read
from (`octavo.interfaces.weights.ModelDescription` holds them), requests or engines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelLoadError, RequestError
from octavo.frontend.pooling import PoolingDefaults, pooling_defaults
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.interfaces.weights import ModelDescription

_SAMPLING_NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """`sampling` holds defaults for fields of `SamplingParams` that a caller leaves unset.

    `max_new_tokens` counts for a request that says nothing of `max_tokens`; it is no ceiling.
    `pooling` is how vectors are made; a model may be made for them alone.
    """

    sampling: Mapping[str, Any] = field(default_factory=dict)
    max_new_tokens: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    pooling: PoolingDefaults = field(default_factory=PoolingDefaults)
    can_generate: bool = True

    def sampling_params(self) -> SamplingParams:
        """Return the parameters of a caller who gave none.

        Where the model has a length of its own, `max_tokens` is None: the request then gets that
        length, or what the context leaves of it.
        """
        params = SamplingParams(**self.sampling)
        if self.max_new_tokens is not None:
            params.max_tokens = None
        return params


def generation_defaults(
    description: ModelDescription, *, has_sampling: bool = True, pooling: str = "auto"
) -> GenerationDefaults:
    """Return what a model says. Raises ModelLoadError when it is not valid.

    With `has_sampling` False (`generation-config = "none"`) only the ids that end a text count.
    As in transformers, those of `config.json` count where the other file names none. `pooling` is
    the way to make vectors, "auto" that of the model's files.
    """
    content = description.generation_config
    eos_ids = _eos_ids(description, content.get("eos_token_id"))
    if not eos_ids:
        eos_ids = _eos_ids(description, description.config.get("eos_token_id"))
    ways = pooling_defaults(description, pooling)
    if not has_sampling:
        return GenerationDefaults(
            eos_token_ids=eos_ids, pooling=ways, can_generate=description.can_generate
        )
    defaults = GenerationDefaults(
        sampling={n: content[n] for n in _SAMPLING_NAMES if content.get(n) is not None},
        max_new_tokens=content.get("max_new_tokens"),
        eos_token_ids=eos_ids,
        pooling=ways,
        can_generate=description.can_generate,
    )
    _check(description, defaults)
    return defaults


def _eos_ids(description: ModelDescription, eos: Any) -> tuple[int, ...]:
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ModelLoadError(
            f"eos_token_id must be an id or a list of ids, not {eos!r} (in {description.path})"
        )
    return tuple(i for i in ids if i >= 0)  # -1 is how some configs write "none"


def _check(description: ModelDescription, defaults: GenerationDefaults) -> None:
    try:
        SamplingParams(**defaults.sampling, max_tokens=defaults.max_new_tokens)
    except RequestError as error:
        problem = error.headline.replace("max_tokens", "max_new_tokens")
        raise ModelLoadError(
            f"the generation defaults of {description.path} are not valid",
            problem,
            "to ignore them: generation-config = 'none'",
        ) from error
