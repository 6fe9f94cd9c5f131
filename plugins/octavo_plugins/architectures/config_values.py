"""Values of a model's config, each of the kind that it has to be.

Knows keys and what was stated. Does not know what any of them means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def invalid_key(config: Mapping[str, Any], key: str, valid: str) -> ModelLoadError:
    """Return the error for a key whose value cannot be, or that is missing."""
    stated = repr(config[key]) if key in config else "that is missing"
    return ModelLoadError(f"unsupported {key} {stated} (the model's config)", f"valid: {valid}")


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a whole number above 0; the default, if there is one, where nothing or null is stated.

    Raises ModelLoadError that names the key, as all of these.
    """
    value = config.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise invalid_key(config, key, "a whole number above 0")


def number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return a number above 0; the default, if there is one, where nothing or null is stated."""
    value = config.get(key)
    if value is None and default is not None:
        return default
    if is_number(value):
        return float(value)
    raise invalid_key(config, key, "a number above 0")


def number_or_null(config: Mapping[str, Any], key: str, default: float | None) -> float | None:
    """Return a number above 0; None where the config says null, the default where nothing."""
    value = config.get(key, default)
    if value is None or is_number(value):
        return None if value is None else float(value)
    raise invalid_key(config, key, "a number above 0, or null")


def is_number(value: object) -> bool:
    """Return whether it is a number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a mapping; an empty one where nothing or null is stated."""
    value = config.get(key)
    if value is None or isinstance(value, dict):
        return value or {}
    raise invalid_key(config, key, "a mapping, or null")


def layer_types(
    config: Mapping[str, Any], num_layers: int, valid: Sequence[str], joined: str
) -> list[str]:
    """Return the kinds of the first `num_layers` layers; `joined` says which there are."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list | tuple) and len(kinds) >= num_layers:
        kept = list(kinds[:num_layers])
        if all(kind in valid for kind in kept):
            return kept
    raise invalid_key(config, "layer_types", f"{num_layers} of {joined}")
