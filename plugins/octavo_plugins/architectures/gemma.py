"""Gemma 2 and 3: a decoder with norms on both sides of each half of a layer.

Beside Llama's, its layers scale embeddings, norm what they add to the stream, gate with GELU, cap
logits where the config says so, and differ in their rotary embedding between layers that see a
window and those that see all.

Knows the order of operations. Does not know how any of them is computed, how many rows are
live, or what a request is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from octavo_plugins.architectures.gemma_config import (
    GEMMA_FAMILIES,
    GemmaConfig,
    read_gemma_config,
)
from octavo_plugins.architectures.llama import Llama

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from octavo.interfaces.architecture import ParameterSpec, StepBuffers
    from octavo.interfaces.ops import Count
    from octavo_plugins.architectures.decoder_config import DecoderConfig


@dataclass(frozen=True, slots=True)
class OuterNorms:
    """The norms of what the two halves of a layer add to the stream, [hidden] each."""

    attended: Tensor
    transformed: Tensor


class Gemma(Llama):
    """A decoder whose checkpoints hold norms less one."""

    served = tuple(GEMMA_FAMILIES)

    _gemma: GemmaConfig
    _outer_norms: list[OuterNorms]

    def _read(self, config: Mapping[str, Any]) -> DecoderConfig:
        """Return the description of a config."""
        self._gemma = read_gemma_config(config)
        return self._gemma.decoder

    def parameters(self) -> Sequence[ParameterSpec]:
        """Return all parameters."""
        return list(_with_outer_norms(super().parameters()))

    def prepare(self, max_tokens: int, max_rows: int, max_positions: int) -> None:
        """Make tables and buffers, and bind each layer to its weights."""
        super().prepare(max_tokens, max_rows, max_positions)
        self._outer_norms = [
            OuterNorms(
                self.weights[f"layers.{layer}.attended_norm"],
                self.weights[f"layers.{layer}.transformed_norm"],
            )
            for layer in range(self.shape.num_layers)
        ]

    def _tables(self, max_positions: int) -> list[Any]:
        """Return the rotary table of each layer, by its kind."""
        rotary, local_rotary = self.shape.rotary, self._gemma.local_rotary
        full = local = self.ops.rotary_table(rotary, max_positions)
        if local_rotary != rotary:
            local = self.ops.rotary_table(local_rotary, max_positions)
        return [local if is_local else full for is_local in self._gemma.is_local]

    def forward(self, step: StepBuffers) -> None:
        """From step.token_ids to step.hidden, through all layers."""
        ops, eps, rows = self.ops, self.shape.norm_eps, step.num_tokens
        residual, delta = self._work.residual, self._work.delta
        normed = step.hidden  # as in Llama: the last norm of the last layer is the final one
        for batch in step.groups:
            self.attention.prepare(batch)
        ops.embedding(residual, step.token_ids, self._embedding, rows)
        ops.scale(residual, self._gemma.embedding_scale, rows)
        ops.rms_norm(normed, residual, self._layers[0].input_norm, eps, rows)
        for layer, outer, cache, batch in zip(
            self._layers, self._outer_norms, step.caches, step.batches, strict=True
        ):
            self._attend(layer, cache, batch, step)
            ops.rms_norm(delta, delta, outer.attended, eps, rows)
            ops.add_rms_norm(normed, residual, delta, layer.post_norm, eps, rows)
            self._transform(layer, normed, rows)
            ops.rms_norm(delta, delta, outer.transformed, eps, rows)
            ops.add_rms_norm(normed, residual, delta, layer.next_norm, eps, rows)

    def _activate(self, rows: Count) -> None:
        """Gate with GELU."""
        self.ops.gelu_mul(self._work.activated, self._work.gate_up, rows)

    def project(self, out: Tensor, hidden: Tensor, rows: Count) -> None:
        """Write logits, capped where the config says so."""
        super().project(out, hidden, rows)
        if self._gemma.logit_softcap is not None:
            self.ops.soft_cap(out, self._gemma.logit_softcap, rows)


def _with_outer_norms(specs: Sequence[ParameterSpec]) -> Iterator[ParameterSpec]:
    """Yield a Llama's parameters by Gemma's names, with the norms that it lacks."""
    for llama_spec in specs:
        if llama_spec.kind != "vector" or not llama_spec.name.endswith("norm"):
            yield llama_spec
            continue
        spec = replace(llama_spec, offset=1.0)
        if not spec.name.endswith("post_norm"):
            yield spec
            continue
        # Llama's norm after attention, which the MLP reads, is Gemma's norm before the MLP
        (source,) = spec.sources
        stem = spec.name.removesuffix("post_norm")
        before, after = "post_attention_layernorm", "post_feedforward_layernorm"
        yield replace(spec, name=f"{stem}attended_norm")
        yield replace(spec, sources=(source.replace(before, "pre_feedforward_layernorm"),))
        yield replace(
            spec, name=f"{stem}transformed_norm", sources=(source.replace(before, after),)
        )
