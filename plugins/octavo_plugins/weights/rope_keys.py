"""Spells rotary embedding in both of Hugging Face's ways, whichever a config came with.

Until transformers 4 a config said `rope_theta` beside `rope_scaling` (with `type` or
`rope_type`); since transformers 5 it says `rope_parameters`. Knows these keys only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_THETA = 10000.0


def with_both_spellings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with `rope_parameters`, `rope_theta` and `rope_scaling` all set.

    A config that gives each type of layer its own parameters is left as it is.
    """
    result = dict(config)
    modern = config.get("rope_parameters")
    legacy = config.get("rope_scaling")
    if isinstance(modern, dict) and any(isinstance(value, dict) for value in modern.values()):
        return result
    if isinstance(modern, dict):
        parameters = dict(modern)
    else:
        parameters = dict(legacy) if isinstance(legacy, dict) else {}
    parameters["rope_type"] = parameters.get("rope_type") or parameters.pop("type", "default")
    parameters.setdefault("rope_theta", config.get("rope_theta") or _DEFAULT_THETA)
    if "original_max_position_embeddings" in config:
        parameters.setdefault(
            "original_max_position_embeddings", config["original_max_position_embeddings"]
        )
    result["rope_parameters"] = parameters
    result["rope_theta"] = parameters["rope_theta"]
    scaling = {key: value for key, value in parameters.items() if key != "rope_theta"}
    result["rope_scaling"] = None if parameters["rope_type"] == "default" else scaling
    return result
