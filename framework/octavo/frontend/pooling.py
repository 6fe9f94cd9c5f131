"""How a model makes vectors of prompts, and what of it a call asks for.

Knows what a model's files say of pooling, and `PoolingParams`. Does not know prompts, numbers
(`octavo.frontend.vectors`) or the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelLoadError, RequestError
from octavo.pooling_params import POOLINGS, PoolingParams
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.engine.messages import EngineInfo
    from octavo.interfaces.weights import ModelDescription


@dataclass(frozen=True, slots=True)
class PoolingDefaults:
    """How a model's vectors are made where a call does not say.

    `mode` may be one that only the model's files know, such as "cls": a call has to name another
    then. With `can_be_cut` a vector may be shorter: of the lengths `dimensions`, or of any length
    where there are none. `hidden_size` is that of a whole vector, None when the config hides it.
    """

    mode: str = "last"
    is_normalized: bool = True
    can_be_cut: bool = False
    dimensions: tuple[int, ...] = ()
    hidden_size: int | None = None


@dataclass(frozen=True, slots=True)
class PoolingPlan:
    """What one call asks for, checked. `sampling` stands in for parameters of sampling."""

    mode: str
    is_normalized: bool
    dimensions: int | None
    sampling: SamplingParams


def pooling_defaults(description: ModelDescription, setting: str = "auto") -> PoolingDefaults:
    """Return how a model pools: as its files say, unless `setting` names a way.

    Raises ModelLoadError where its config is not valid.
    """
    config, said = description.config, description.pooling
    text_config = config.get("text_config")
    sizes: Mapping[str, Any] = text_config if isinstance(text_config, dict) else config
    dimensions = _matryoshka(description)
    mode = "last" if said is None else said.mode
    hidden_size = sizes.get("hidden_size")
    return PoolingDefaults(
        mode=mode if setting == "auto" else setting,
        is_normalized=said is None or said.is_normalized,
        can_be_cut=bool(dimensions or config.get("is_matryoshka")),
        dimensions=dimensions,
        hidden_size=hidden_size if isinstance(hidden_size, int) else None,
    )


def pooling_plan(
    params: PoolingParams | None, defaults: PoolingDefaults, info: EngineInfo
) -> PoolingPlan:
    """Return what is to be done for parameters; None stands for the model's own way.

    Calls that share a plan share its checks. Raises RequestError for what this model cannot do.
    """
    params = PoolingParams() if params is None else params
    if not isinstance(params, PoolingParams):
        raise RequestError(
            f"pooling_params must be a PoolingParams, not {type(params).__name__}",
            param="pooling_params",
        )
    mode = params.pooling or defaults.mode
    if mode not in POOLINGS:
        raise RequestError(
            f"the pooling of this model is '{mode}', which is not done here",
            f"ask for one of {', '.join(POOLINGS)} by name (`pooling`), if vectors may differ",
            param="pooling",
        )
    if params.dimensions is not None:
        _check_dimensions(params.dimensions, defaults)
    is_normalized = params.is_normalized
    num_kept = params.truncate_prompt_tokens
    sampling = SamplingParams(
        temperature=0.0,
        seed=0,
        max_tokens=1,
        detokenize=False,
        truncate_prompt_tokens=info.max_model_len if num_kept == -1 else num_kept,
        extra_args=params.extra_args,
    )
    return PoolingPlan(
        mode,
        defaults.is_normalized if is_normalized is None else is_normalized,
        params.dimensions,
        sampling,
    )


def _matryoshka(description: ModelDescription) -> tuple[int, ...]:
    """Return the lengths to which vectors of this model may be cut."""
    found = description.config.get("matryoshka_dimensions") or ()
    is_good = isinstance(found, list | tuple) and all(
        isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in found
    )
    if not is_good:
        raise ModelLoadError(
            f"matryoshka_dimensions must be a list of lengths, not {found!r:.80} "
            f"(in {description.path})"
        )
    return tuple(sorted(found))


def _check_dimensions(wanted: int, defaults: PoolingDefaults) -> None:
    if wanted == defaults.hidden_size:
        return
    if not defaults.can_be_cut:
        raise RequestError(
            "dimensions: the vectors of this model cannot be cut: it was not trained for that",
            f"leave dimensions out: vectors have {defaults.hidden_size} numbers"
            if defaults.hidden_size
            else "leave dimensions out",
            param="dimensions",
        )
    lengths, whole = defaults.dimensions, defaults.hidden_size
    if (lengths and wanted not in lengths) or (whole is not None and wanted > whole):
        valid = ", ".join(map(str, lengths)) if lengths else f"1 to {whole}"
        raise RequestError(
            f"dimensions must be one of those this model was trained for, not {wanted}",
            f"valid: {valid}",
            param="dimensions",
        )
