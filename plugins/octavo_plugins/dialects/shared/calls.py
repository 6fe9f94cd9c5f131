"""From a request's body to an engine call: parameters, prompt, and the names of errors' fields.

Explicit values always win, also 0; what is not given is the model's own default, and else vLLM's.

Knows bodies that have the common fields. Does not know JSON, routes or answers.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.repetition import RepetitionDetectionParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from octavo.sampling_params import SamplingParams
    from octavo_plugins.dialects.shared.bodies import CommonBody


def sampling_of(
    body: CommonBody, defaults: SamplingParams, names: Iterable[str], **others: Any
) -> SamplingParams:
    """Return the parameters of a body: those that are called the same, and `others` as they are."""
    given = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
    return replace(defaults, **given, extra_args=body.vllm_xargs, **others)


def repetition_of(given: Mapping[str, int] | None) -> RepetitionDetectionParams | None:
    """Return when a text counts as repetition; parts that nobody knows are reported elsewhere."""
    if given is None:
        return None
    names = (one.name for one in fields(RepetitionDetectionParams))
    return RepetitionDetectionParams(**{name: given[name] for name in names if name in given})


def unknown_parts(
    parts: Iterable[tuple[str, Mapping[str, Any] | None, AbstractSet[str]]],
) -> list[str]:
    """Return what fields that are objects hold beside what is known: `field.name` of each."""
    return [
        f"{field}.{name}"
        for field, given, known in parts
        for name, value in (given or {}).items()
        if name not in known and value is not None
    ]


def with_salt(prompt: str | list[int], body: CommonBody) -> str | list[int] | dict[str, Any]:
    """Return a prompt as the front end takes it: with its cache salt, if one was given."""
    if body.cache_salt is None:
        return prompt
    key = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
    return {key: prompt, "cache_salt": body.cache_salt}


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors name the fields as this API calls them."""
    try:
        yield
    except RequestError as error:
        error.param = names.get(error.param or "", error.param)
        raise
