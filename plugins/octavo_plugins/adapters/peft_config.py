"""Reads `adapter_config.json` of a PEFT folder: ranks, factors, and what cannot be obeyed.

Every field is one of three: obeyed, without meaning for a forward pass, or refused. A field that
nobody here knows is refused as well, unless it holds a value that asks for nothing.

Knows PEFT's names (peft.tuners.lora.LoraConfig of 0.21). Does not know tensors.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from octavo.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

T = TypeVar("T", int, float)

CONFIG: Final = "adapter_config.json"

_OBEYED: Final = frozenset({
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern",
})  # fmt: skip
#: what matters to training, to other tools, or is said again by the tensors' names
_WITHOUT_MEANING: Final = frozenset({
    "alora_invocation_string", "auto_mapping", "base_model_name_or_path", "corda_config",
    "ensure_weight_tying", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode",
    "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config",
    "megatron_core", "peft_version", "qalora_group_size", "revision", "runtime_config",
    "target_modules", "task_type",
})  # fmt: skip
_REFUSED: Final = {
    "use_dora": "DoRA also scales each output of the weights",
    "modules_to_save": "it brings whole modules of its own",
    "lora_bias": "it brings biases",
    "trainable_token_indices": "it changes embeddings of tokens",
    "layer_replication": "it repeats layers of the model",
    "target_parameters": "it changes parameters that are no linear layers",
    "alora_invocation_tokens": "it is active after certain tokens only (aLoRA)",
    "use_qalora": "QALoRA pools the inputs of its layers",
    "megatron_config": "it is split between Megatron's ranks",
}
#: ways to initialise that leave the model's own weights as they are
_PLAIN_INITS: Final = (True, False, None, "gaussian", "eva", "orthogonal", "mica")
_NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {})
_LITERAL: Final = re.compile(r"[\w.]+")
#: a group that repeats: the only way to make a match of so short names take for ever
_REPEATED_GROUP: Final = re.compile(r"\)\s*[*+{]")


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """What a config says of ranks and factors; patterns are matched as PEFT does."""

    rank: int
    alpha: float
    is_rank_stabilised: bool
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]

    def rank_of(self, module: str) -> int:
        """Return the rank of a module, named as in the model: `model.layers.0.mlp.up_proj`."""
        return _matching(self.rank_pattern, module, self.rank)

    def factor_of(self, module: str) -> float:
        """Return what `b @ a` is multiplied with (Kalajdzievski 2023 for the stabilised form)."""
        rank = self.rank_of(module)
        alpha = _matching(self.alpha_pattern, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.is_rank_stabilised else rank)


def read_peft_config(path: Path, content: bytes) -> PeftConfig:
    """Return what a config file holds. Raises AdapterError naming the field at fault."""
    try:
        fields = json.loads(content)
    except ValueError as error:  # not JSON, or not UTF-8
        raise AdapterError(f"'{path}' is no valid JSON", str(error)) from error
    if not isinstance(fields, dict):
        raise AdapterError(f"'{path}' must hold a JSON object, not a {type(fields).__name__}")
    faults = list(_faults(fields))
    if faults:
        raise AdapterError(f"this adapter cannot be served ('{path}')", *faults)
    return PeftConfig(
        rank=fields["r"],
        alpha=float(fields["lora_alpha"]),
        is_rank_stabilised=bool(fields.get("use_rslora")),
        rank_pattern=fields.get("rank_pattern") or {},
        alpha_pattern=fields.get("alpha_pattern") or {},
    )


def _faults(fields: Mapping[str, Any]) -> list[str]:
    kind = fields.get("peft_type")
    if kind != "LORA":
        return [f"peft_type: {kind!r:.80} is not supported, only 'LORA' is"]
    faults = []
    for name, value in fields.items():
        if value in _NOTHING or name in _OBEYED or name in _WITHOUT_MEANING:
            continue
        if name == "bias":
            if value != "none":
                faults.append(f"bias: {value!r:.80}: biases are not supported, only 'none' is")
        elif name == "init_lora_weights":
            if value not in _PLAIN_INITS:
                faults.append(
                    f"init_lora_weights: {value!r:.80} changes the model's own weights; "
                    "save the adapter converted to plain LoRA"
                )
        else:
            reason = _REFUSED.get(name, "a field that is not known here, and may matter")
            faults.append(f"{name}: {value!r:.80}: {reason}")
    return [*faults, *_number_faults(fields)]


def _number_faults(fields: Mapping[str, Any]) -> list[str]:
    faults = []
    if not _is_rank(fields.get("r")):
        faults.append(f"r: {fields.get('r')!r:.80} is no whole number above 0")
    if not _is_factor(fields.get("lora_alpha")):
        faults.append(f"lora_alpha: {fields.get('lora_alpha')!r:.80} is no finite number")
    for name, is_valid in (("rank_pattern", _is_rank), ("alpha_pattern", _is_factor)):
        patterns = fields.get(name) or {}
        if not isinstance(patterns, dict):
            faults.append(f"{name}: must be an object, not a {type(patterns).__name__}")
            continue
        for pattern, value in patterns.items():
            if not is_valid(value):
                faults.append(f"{name}: {pattern!r:.80}: {value!r:.80} is no valid number")
            if not _is_pattern(pattern):
                faults.append(f"{name}: {pattern!r:.80} is no pattern that can be matched safely")
    return faults


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_factor(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _is_pattern(pattern: str) -> bool:
    """Return whether matching the pattern ends soon; PEFT takes any regular expression."""
    if _LITERAL.fullmatch(pattern):
        return True
    if _REPEATED_GROUP.search(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _matching(patterns: Mapping[str, T], module: str, default: T) -> T:
    """Return the value of the first pattern that matches the end of a module's name."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default
