"""A small family that mixes attention over all tokens or a window with linear attention.

Its linear layers keep a state of a fixed size, one matrix per head that decays at the head's own
rate, as lightning attention does (Qin et al. 2024, and MiniMax-Text-01, whose rates these are);
their results are normed by head. All else is Llama's. There are no published checkpoints: it is
the proof that states go the same way through blocks, prefix hits and preemption as keys do.

Knows the order of operations. Does not know how any of them is computed, how many rows are
live, or what a request is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch

from octavo.interfaces.architecture import ParameterSpec
from octavo.interfaces.attention import StateSpec
from octavo_plugins.architectures.config_values import invalid_key, layer_types, whole
from octavo_plugins.architectures.decoder_config import LAYER_TYPES, Family, read_decoder_config
from octavo_plugins.architectures.decoder_weights import Layer
from octavo_plugins.architectures.llama import Llama

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from octavo.interfaces.architecture import StepBuffers
    from octavo.interfaces.attention import AttentionBatch, CacheSpec
    from octavo_plugins.architectures.decoder_config import DecoderConfig

NAME: Final = "OctavoLinearHybridForCausalLM"
LINEAR: Final = "linear_attention"
FAMILIES: Final[Mapping[str, Family]] = MappingProxyType({NAME: Family(windows="all")})


@dataclass(slots=True)
class LinearLayer(Layer):
    """A layer with a state. `state_norm`: [head_dim], of what is read from it."""

    state_norm: Any = None

    @classmethod
    def of(cls, layer: Layer, state_norm: Tensor) -> LinearLayer:
        """Return a layer with a state, otherwise like `layer`."""
        shared = {one.name: getattr(layer, one.name) for one in fields(layer)}
        return cls(**shared, state_norm=state_norm)


class LinearHybrid(Llama):
    """A decoder some of whose layers have a state in place of keys and values."""

    served = (NAME,)

    _is_linear: tuple[bool, ...]
    _decay: Tensor  # [heads of this rank]

    def _read(self, config: Mapping[str, Any]) -> DecoderConfig:
        """Return the description of a config, and note which layers are linear."""
        kinds = _layer_types(config)
        self._is_linear = tuple(kind == LINEAR for kind in kinds)
        # what a linear layer sees is no matter of a window
        others = ["full_attention" if kind == LINEAR else kind for kind in kinds]
        shape = read_decoder_config({**config, "layer_types": others}, FAMILIES)
        if shape.num_kv_heads != shape.num_heads:
            raise invalid_key(
                config, "num_key_value_heads", f"{shape.num_heads}, one for each head"
            )
        return shape

    def parameters(self) -> Sequence[ParameterSpec]:
        """Return all parameters."""
        norms = [
            ParameterSpec(
                f"layers.{layer}.state_norm",
                "vector",
                (f"model.layers.{layer}.self_attn.norm.weight",),
                ((self.shape.head_dim,),),
            )
            for layer, is_linear in enumerate(self._is_linear)
            if is_linear
        ]
        return [*super().parameters(), *norms]

    def cache_specs(self) -> Sequence[CacheSpec | StateSpec]:
        """Return what each layer caches: keys and values, or one state."""
        share = self._share
        state = StateSpec((share.num_heads, share.head_dim, share.head_dim))
        specs = super().cache_specs()
        return [
            state if is_linear else spec
            for spec, is_linear in zip(specs, self._is_linear, strict=True)
        ]

    def prepare(self, max_tokens: int, max_rows: int, max_positions: int) -> None:
        """Make tables, rates and buffers, and bind each layer to its weights."""
        super().prepare(max_tokens, max_rows, max_positions)
        for index, is_linear in enumerate(self._is_linear):
            if is_linear:
                norm = self.weights[f"layers.{index}.state_norm"]
                self._layers[index] = LinearLayer.of(self._layers[index], norm)
        rank = 0 if self.ops.collective is None else self.ops.collective.rank
        self._decay = decays(self.shape.num_heads).chunk(self._num_ranks)[rank]

    def _attend(self, layer: Layer, cache: Any, batch: AttentionBatch, step: StepBuffers) -> None:
        """Leave in `delta` what tokens learn from those before them."""
        if not isinstance(layer, LinearLayer):
            super()._attend(layer, cache, batch, step)
            return
        ops, work, rows = self.ops, self._work, step.num_tokens
        ops.linear(work.qkv, step.hidden, layer.qkv, None, rows)
        ops.linear_attention(work.attended, work.q, work.k, work.v, self._decay, cache)
        ops.rms_norm(work.attended, work.attended, layer.state_norm, self.shape.norm_eps, rows)
        ops.linear(work.delta, work.attended_flat, layer.output, None, rows)
        if self._num_ranks > 1:
            ops.all_reduce(work.delta, rows)


def decays(num_heads: int) -> Tensor:
    """Return how much of its state each head keeps per token: float32 [heads], slowest last."""
    slopes = 2.0 ** (-8.0 / num_heads * torch.arange(1, num_heads + 1))
    return torch.exp(-slopes)


def _layer_types(config: Mapping[str, Any]) -> list[str]:
    valid = (*LAYER_TYPES, LINEAR)
    return layer_types(config, whole(config, "num_hidden_layers"), valid, ", ".join(valid))
