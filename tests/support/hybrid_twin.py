"""Tiny random models of the linear-hybrid family, and their logits by definition in float64.

No library has this family, so that the twin is written here: one expression for each step, every
token against all before it, no states, blocks, caches or batches.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from checkpoints import write_safetensors
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
_THETA, _EPS = 10_000.0, 1e-6


@dataclass(frozen=True)
class Hybrid:
    """A tiny model: its layers, and its vocabulary (the last two ids begin and end texts)."""

    layer_types: tuple[str, ...]
    vocab_size: int = 96
    window: int = 8

    def __str__(self) -> str:
        return "-".join(kind.removesuffix("_attention") for kind in self.layer_types)

    @property
    def config(self) -> dict[str, Any]:
        """Return the config as a file would hold it."""
        return {
            "architectures": ["OctavoLinearHybridForCausalLM"],
            "model_type": "octavo_linear_hybrid",
            "vocab_size": self.vocab_size,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": len(self.layer_types),
            "num_attention_heads": 4,
            "max_position_embeddings": 1024,
            "sliding_window": self.window,
            "layer_types": list(self.layer_types),
            "bos_token_id": self.vocab_size - 2,
            "eos_token_id": self.vocab_size - 1,
        }

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return the weights, the same every time."""
        return _tensors(self)

    def checkpoint(self) -> MemoryCheckpoint:
        """Return the model as a checkpoint in memory."""
        return MemoryCheckpoint(self.config, self.tensors)

    def save(self, folder: Path) -> Path:
        """Write the model as safetensors and config.json."""
        return write_safetensors(folder, self.config, [self.tensors])

    @torch.no_grad()
    def logits(self, token_ids: list[int], tensors: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return the logits [tokens, vocab] at every position of a prompt, float64."""
        tensors = self.tensors if tensors is None else tensors
        weights = {name: tensor.double() for name, tensor in tensors.items()}
        x = weights["model.embed_tokens.weight"][token_ids]
        for index, kind in enumerate(self.layer_types):
            prefix = f"model.layers.{index}."
            layer = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
            normed = _norm(x, layer["input_layernorm.weight"])
            x = x + _attention(normed, layer, kind, self.window)
            normed = _norm(x, layer["post_attention_layernorm.weight"])
            gate = torch.nn.functional.silu(normed @ layer["mlp.gate_proj.weight"].T)
            up = normed @ layer["mlp.up_proj.weight"].T
            x = x + (gate * up) @ layer["mlp.down_proj.weight"].T
        return _norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T

    def greedy(self, token_ids: list[int], num_tokens: int) -> list[int]:
        """Return what follows a prompt, everything computed anew for each token."""
        ids = list(token_ids)
        for _ in range(num_tokens):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[len(token_ids) :]


def _attention(x: Tensor, layer: dict[str, Tensor], kind: str, window: int) -> Tensor:
    q, k, v = ((x @ layer[f"self_attn.{name}_proj.weight"].T).view(len(x), 4, 16) for name in "qkv")
    distance = torch.arange(len(x))[:, None] - torch.arange(len(x))
    if kind == LINEAR:
        slopes = torch.tensor([2.0 ** (-8 / 4 * (head + 1)) for head in range(4)], dtype=x.dtype)
        # what a state holds of a token when another reads it: no state is needed to say so
        kept = torch.exp(-slopes[:, None, None] * distance.clamp(min=0)).masked_fill(
            distance < 0, 0
        )
        out = torch.einsum("hnt,thd->nhd", torch.einsum("nhd,thd->hnt", q, k) * kept, v)
        out = _norm(out, layer["self_attn.norm.weight"])
    else:
        q, k = _rotated(q), _rotated(k)
        is_hidden = (distance < 0) | ((kind == SLIDING) & (distance >= window))
        scores = torch.einsum("nhd,thd->hnt", q, k) / 4
        weights = scores.masked_fill(is_hidden, -math.inf).softmax(-1)
        out = torch.einsum("hnt,thd->nhd", weights, v)
    return out.reshape(len(x), -1) @ layer["self_attn.o_proj.weight"].T


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + _EPS).sqrt() * weight


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    rates = _THETA ** -(torch.arange(half, dtype=x.dtype) / half)
    angles = (torch.arange(len(x), dtype=x.dtype)[:, None] * rates)[:, None]  # [n, 1, half]
    low, high = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


@functools.cache
def _tensors(model: Hybrid) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(len(str(model)))

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) * 1.5 * columns**-0.5

    def norm(size: int) -> Tensor:
        return 1 + 0.3 * torch.randn(size, generator=generator)

    tensors = {"model.embed_tokens.weight": matrix(model.vocab_size, 64)}
    for index, kind in enumerate(model.layer_types):
        prefix = f"model.layers.{index}."
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{prefix}self_attn.{name}.weight"] = matrix(64, 64)
        if kind == LINEAR:
            tensors[f"{prefix}self_attn.norm.weight"] = norm(16)
        tensors[f"{prefix}input_layernorm.weight"] = norm(64)
        tensors[f"{prefix}post_attention_layernorm.weight"] = norm(64)
        tensors[f"{prefix}mlp.gate_proj.weight"] = matrix(96, 64)
        tensors[f"{prefix}mlp.up_proj.weight"] = matrix(96, 64)
        tensors[f"{prefix}mlp.down_proj.weight"] = matrix(64, 96)
    tensors["model.norm.weight"] = norm(64)
    tensors["lm_head.weight"] = matrix(model.vocab_size, 64)
    return tensors
