"""Writes LoRA adapters as PEFT does, and merges them into weights by the formula of the paper."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ALL_LINEARS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Lora:
    """What an adapter changes. `size`: of its changes beside the weights', about.

    `ranks` and `alphas` differ from `rank` and `alpha` for modules whose names end so; they are
    written as PEFT's patterns. `config` adds to the config, `tensors` to the weights.
    """

    seed: int = 0
    rank: int = 4
    alpha: float = 8
    modules: Sequence[str] = ALL_LINEARS
    is_rank_stabilised: bool = False
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)
    size: float = 0.5
    dtype: torch.dtype = torch.float32
    config: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)


def write_adapter(folder: Path, weights: Mapping[str, torch.Tensor], lora: Lora) -> Path:
    """Write an adapter of random factors for a model's weights. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(1000 + lora.seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        if not module.endswith(tuple(lora.modules)):
            continue
        rank = _of_module(lora.ranks, module, lora.rank)
        alpha = _of_module(lora.alphas, module, lora.alpha)
        factor = alpha / (math.sqrt(rank) if lora.is_rank_stabilised else rank)
        outs, ins = weight.shape
        a = torch.randn(rank, ins, generator=generator) / math.sqrt(ins)
        b = torch.randn(outs, rank, generator=generator) / math.sqrt(rank)
        key = f"base_model.model.{module}"
        tensors[f"{key}.lora_A.weight"] = a.to(lora.dtype)
        tensors[f"{key}.lora_B.weight"] = (b * lora.size / factor).to(lora.dtype)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "bias": "none",
        "use_rslora": lora.is_rank_stabilised,
        "rank_pattern": dict(lora.ranks),
        "alpha_pattern": dict(lora.alphas),
        "target_modules": [module.rpartition(".")[2] for module in lora.modules],
        "lora_dropout": 0.05,
        "init_lora_weights": True,
        "modules_to_save": None,
    }
    (folder / CONFIG).write_text(json.dumps(config | dict(lora.config)))
    save_file(tensors | dict(lora.tensors), folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def merged(
    weights: Mapping[str, torch.Tensor], *adapters: tuple[Path, Lora, float]
) -> dict[str, torch.Tensor]:
    """Return weights with adapters (folder, what was written there, scale) merged, in float64."""
    result = {name: weight.to(torch.float64) for name, weight in weights.items()}
    for folder, lora, scale in adapters:
        tensors = load_file(folder / WEIGHTS)
        for name in [name for name in tensors if ".lora_A." in name]:
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            a = tensors[name].to(torch.float64)
            b = tensors[name.replace("lora_A", "lora_B")].to(torch.float64)
            rank = a.shape[0]
            alpha = _of_module(lora.alphas, module, lora.alpha)
            factor = alpha / (math.sqrt(rank) if lora.is_rank_stabilised else rank)
            result[f"{module}.weight"] = result[f"{module}.weight"] + scale * factor * (b @ a)
    return {name: weight.to(torch.float32) for name, weight in result.items()}


def _of_module(values: Mapping[str, Any], module: str, default: Any) -> Any:
    return next((value for end, value in values.items() if module.endswith(end)), default)
