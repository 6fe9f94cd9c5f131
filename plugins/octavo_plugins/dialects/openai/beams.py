"""`use_beam_search`: `n` is the width of the beam, and all choices are texts that it found.

Knows which fields a search obeys, and which it cannot. Does not know how beams are searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError
from octavo.sampling_params import BeamSearchParams, SamplingParams
from octavo_plugins.dialects.openai.forms import form_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo_plugins.dialects.openai.bodies import GenerationBody

_FIELD: Final = "use_beam_search"
#: fields that a search would have to obey and cannot, and the values that ask for nothing
_REFUSED: Final[Mapping[str, tuple[Any, ...]]] = {
    "stream": (False,), "min_tokens": (0,), "presence_penalty": (0,), "frequency_penalty": (0,),
    "repetition_penalty": (1,), "logit_bias": ({},), "allowed_token_ids": (), "bad_words": ([],),
    "thinking_token_budget": (-1,), "vllm_xargs": ({},), "repetition_detection": (),
    "logprob_token_ids": ([],),
}  # fmt: skip
_WHY: Final[Mapping[str, str]] = {
    "stream": "which texts are the best is known only at the end",
}
_BY_DEFAULT: Final = "texts are compared by the probabilities that the model itself gives"
_OF_FORMS: Final = "a search cannot hold its texts to a form"
#: fields of drawing, which a search does not do, and the values that ask for nothing
_UNHEEDED: Final[Mapping[str, tuple[Any, ...]]] = {
    "temperature": (0, 1), "top_p": (1,), "top_k": (0, -1), "min_p": (0,),
}  # fmt: skip
_OF_TEXTS: Final = (
    "skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens",
    "truncation_side",
)  # fmt: skip


def length_penalty_of(body: GenerationBody) -> float | None:
    """Return the penalty of a search; None where none is asked for."""
    if not body.use_beam_search:
        return None
    return 1.0 if body.length_penalty is None else body.length_penalty


def beam_sampling(body: GenerationBody, *, max_tokens: int | None, **others: Any) -> SamplingParams:
    """Return what a search asks for; the model's own defaults for drawing are nothing to it.

    Raises RequestError for what cannot be had together with a search.
    """
    refused = dict.fromkeys(form_fields(body), _OF_FORMS)
    refused |= {name: _WHY.get(name, _BY_DEFAULT) for name in _given(body, _REFUSED)}
    for name, why in refused.items():
        raise RequestError(f"{name} and {_FIELD} cannot be given together", why, param=name)
    params = BeamSearchParams(
        beam_width=1 if body.n is None else body.n,
        max_tokens=max_tokens,
        ignore_eos=bool(body.ignore_eos),
        length_penalty=1.0 if body.length_penalty is None else body.length_penalty,
        include_stop_str_in_output=bool(body.include_stop_str_in_output),
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
    )
    texts = {name: getattr(body, name) for name in _OF_TEXTS if getattr(body, name) is not None}
    return params.sampling(**texts, **others)


def check_no_search(body: GenerationBody) -> None:
    """Raise RequestError for a field of searches where there is none."""
    if body.length_penalty not in {None, 1}:
        raise RequestError(f"length_penalty needs {_FIELD} to be true", param="length_penalty")


def unheeded_by_search(body: GenerationBody) -> list[str]:
    """Return the fields that change nothing because nothing is drawn."""
    return _given(body, _UNHEEDED) if body.use_beam_search else []


def _given(body: GenerationBody, idle: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """Return the fields that hold something else than what asks for nothing."""
    held = {name: getattr(body, name, None) for name in idle}
    return [name for name, value in held.items() if value is not None and value not in idle[name]]
