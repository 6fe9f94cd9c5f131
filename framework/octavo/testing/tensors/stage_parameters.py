"""Finds parameters of a request that make a stage do something.

Knows fields and their bounds. Does not know any stage.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from octavo.plugin.build import load_params
from octavo.sampling_params import SamplingParams
from octavo.testing.invariants import SampleNeededError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from octavo.interfaces.sampler import SamplerStage
    from octavo.testing.subjects import Subject

#: values of the fields of SamplingParams that ask for something
_FIELDS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "temperature": (0.0, 0.5, 1.7),
        "top_k": (1, 3, 23),
        "top_p": (0.1, 0.5, 0.9),
        "min_p": (0.05, 0.3, 1.0),
        "allowed_token_ids": ([1, 2, 3, 5, 8], [7]),
        "bad_words": (["x"],),
        "min_tokens": (1, 4, 16),
        "stop_token_ids": ([3],),
        "logit_bias": ({1: 2.0, 4: -3.0},),
        "repetition_penalty": (1.5, 0.6),
        "frequency_penalty": (0.5, -0.5),
        "presence_penalty": (0.7,),
    }
)
_GUESSES = (0.5, 1, 2, 0.05, 0.9, 3, 10, True, "on")
_MOST = 8


def activating(subject: Subject) -> list[SamplingParams]:
    """Return parameters that ask for a stage, different ones.

    Raises SampleNeededError when none are found: then the suite has to give them.
    """
    stage: SamplerStage = subject.build()
    if subject.sample is not None:
        given = subject.sample if isinstance(subject.sample, list) else [subject.sample]
        found = [_params_of(one) for one in given]
    else:
        found = [*values_of_fields(stage), *_of_model(subject)]
    active = [params for params in found if stage.is_active(params)]
    if not active:
        raise SampleNeededError(
            f"no parameters are found that ask for the sampler stage '{subject.name}'",
            "give some: sample = {'name': value} in the suite, or --sample '{\"name\": value}'",
        )
    return active[:_MOST]


def _params_of(values: Mapping[str, Any]) -> SamplingParams:
    own = {name: one for name, one in values.items() if name in SamplingParams.__dataclass_fields__}
    rest = {name: one for name, one in values.items() if name not in own}
    return SamplingParams(**own, extra_args=rest or None)


def values_of_fields(stage: SamplerStage) -> Iterator[SamplingParams]:
    """Yield values of the fields of `SamplingParams` that a stage reads."""
    for name in stage.parameters:
        for value in _FIELDS.get(name, ()):
            yield _params_of({name: value})


def _of_model(subject: Subject) -> Iterator[SamplingParams]:
    """Yield what the model of a request's parameters takes, field by field."""
    model = load_params(subject.entry)
    if model is None:
        return
    for name, schema in model.model_json_schema().get("properties", {}).items():
        bounds = [schema[key] for key in ("minimum", "maximum") if key in schema]
        for value in (*schema.get("examples", ()), *_GUESSES, *bounds):
            try:
                model.model_validate({name: value})
            except ValidationError:
                continue
            yield SamplingParams(extra_args={name: value})
