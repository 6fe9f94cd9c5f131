"""vLLM's `speculative_config` as a choice of proposer and its options.

    {"method": "ngram", "num_speculative_tokens": 5}   is   [proposer] use = "ngram"
                                                             num-drafts = 5

Keys that vLLM does not have are the options of the proposer under their own names. Knows vLLM's
keys. Does not know which proposers there are, nor which options they have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "num_speculative_tokens": "num-drafts",
        "prompt_lookup_max": "max-ngram",
        "prompt_lookup_min": "min-ngram",
    }
)
_WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "draft_tensor_parallel_size": "drafts are made beside the model",
        "disable_by_batch_size": "drafts are made where they pay, by measured costs",
        "disable_padded_drafter_batch": "drafts of different lengths share a step",
        "disable_logprobs": "log probabilities are given with drafts as without",
    }
)


@dataclass(slots=True)
class ProposerSettings:
    """What a `speculative_config` says: `use` and options, each with the key it came from.

    `notes` are on keys that were accepted without effect.
    """

    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_speculative_config(value: Any, where: str) -> ProposerSettings:
    """Translate a mapping, or the JSON text of one.

    Raises ConfigError, naming `where`, when it is neither, says nothing of the method, or says one
    thing twice.
    """
    named = _mapping(value, where).items()
    given = {key.replace("-", "_"): one for key, one in named if one is not None}
    settings = ProposerSettings()
    settings.values["use"] = _method(given, where)
    for one, other in (("max", "min"), ("min", "max")):  # as vLLM does: one stands for both
        if f"prompt_lookup_{one}" in given:
            given.setdefault(f"prompt_lookup_{other}", given[f"prompt_lookup_{one}"])
    for key, setting in given.items():
        if key in _WITHOUT_EFFECT:
            settings.notes.append(f"{where} {key} has no effect: {_WITHOUT_EFFECT[key]}")
            continue
        option = _OPTIONS.get(key, key.replace("_", "-"))
        before = settings.values.get(option)
        if before is not None and before[0] != setting:
            facts = (f"{name}: {one!r:.80}" for one, name in (before, (setting, key)))
            raise ConfigError(f"two values for {option} ({where})", *facts, "give one of them")
        settings.values[option] = setting, key
    return settings


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            headline = f"invalid value {value!r:.80} ({where})"
            raise ConfigError(headline, f"it is no JSON: {error}", _EXAMPLE) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        headline = f"invalid value {value!r:.80} ({where})"
        raise ConfigError(headline, "it is no table of settings", _EXAMPLE)
    return value


_EXAMPLE = 'for example: {"method": "ngram", "num_speculative_tokens": 5}'


def _method(given: dict[str, Any], where: str) -> tuple[Any, str]:
    """Take the method out, or tell it from the model as vLLM does."""
    method, model = given.pop("method", None), given.get("model")
    if model in {"ngram", "[ngram]"}:
        del given["model"]
        return ("ngram" if method is None else method), "model"
    if method is None and model is not None:
        return "draft-model", "model"
    if method is None:
        headline = f"no method ({where})"
        raise ConfigError(headline, "`octavo plugins list` shows the proposers", _EXAMPLE)
    return (method.replace("_", "-") if isinstance(method, str) else method), "method"
