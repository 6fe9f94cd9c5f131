"""Llama and its relatives: Mistral, Qwen 2, 2.5 and 3, SmolLM 2 and 3.

One forward pass serves them all; what sets them apart (biases, norms of queries and keys,
windows, layers without rotary embedding, the rotary table) is decided before the first step.

Knows the order of operations. Does not know how any of them is computed, how many rows are
live, or what a request is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from octavo.interfaces.architecture import Architecture
from octavo.interfaces.attention import CacheSpec
from octavo_plugins.architectures.decoder_config import (
    FAMILIES,
    DecoderConfig,
    read_decoder_config,
)
from octavo_plugins.architectures.decoder_split import is_head_split, num_ranks, share_of
from octavo_plugins.architectures.decoder_weights import (
    EMBEDDING,
    HEAD,
    Layer,
    build_layer,
    decoder_parameters,
)
from octavo_plugins.architectures.decoder_work import Work, make_work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from octavo.interfaces.architecture import ParameterSpec, StepBuffers
    from octavo.interfaces.attention import Attention, AttentionBatch, StateSpec
    from octavo.interfaces.ops import Count, OpSet


class Llama(Architecture):
    """A decoder of pre-normed attention and gated MLP layers."""

    served = tuple(FAMILIES)

    _layers: list[Layer]
    _work: Work
    _embedding: Any
    _head: Any
    _logits: Tensor | None  # [cap, vocab / ranks]: this rank's, of a head that is split

    def __init__(self, config: Mapping[str, Any], ops: OpSet, attention: Attention) -> None:
        super().__init__(config, ops, attention)
        self.shape: DecoderConfig = self._read(config)
        self._num_ranks = num_ranks(ops.collective)
        #: the sizes of what this rank computes
        self._share = share_of(self.shape, self._num_ranks)
        if self.shape.is_tied:
            # some checkpoints store the tied matrix a second time
            self.ignored = (*self.ignored, "lm_head.weight")

    def _read(self, config: Mapping[str, Any]) -> DecoderConfig:
        """Return the description of a config of this class's families."""
        return read_decoder_config(config)

    @property
    def vocab_size(self) -> int:
        """Return the number of logits."""
        return self.shape.vocab_size

    @property
    def hidden_size(self) -> int:
        """Return the width of a hidden state."""
        return self.shape.hidden_size

    @property
    def max_positions(self) -> int:
        """Return the longest context that config and rope scaling allow."""
        return self.shape.max_positions

    def parameters(self) -> Sequence[ParameterSpec]:
        """Return all parameters, in the order of the forward pass."""
        return list(decoder_parameters(self.shape, self._num_ranks))

    def cache_specs(self) -> Sequence[CacheSpec | StateSpec]:
        """Return what each layer caches: keys and values of its kv heads."""
        shape = self._share
        dtype = self.ops.activation_dtype
        if self.ops.cache_dtype in self.attention.cache_dtypes:
            dtype = self.ops.cache_dtype
        return [
            CacheSpec(
                shape.num_kv_heads, shape.head_dim, dtype, None if window is None else window - 1
            )
            for window in shape.windows
        ]

    def prepare(self, max_tokens: int, max_rows: int, max_positions: int) -> None:
        """Make rotary tables and the working buffers, and bind each layer to its weights."""
        share, ops = self._share, self.ops
        dtype: torch.dtype = getattr(torch, ops.activation_dtype)
        self._work = make_work(share, dtype, max_tokens, max_rows)
        rank = 0 if ops.collective is None else ops.collective.rank
        self._layers = [build_layer(share, self.weights, i, rank) for i in range(share.num_layers)]
        for layer, table in zip(self._layers, self._tables(max_positions), strict=True):
            layer.table = table
        self._embedding = self.weights[EMBEDDING]
        self._head = self.weights.get(HEAD, self._embedding)
        self._logits = None
        if is_head_split(self.shape, self._num_ranks):
            width = self.vocab_size // self._num_ranks
            self._logits = torch.zeros(max_rows, width, dtype=dtype)

    def _tables(self, max_positions: int) -> list[Any]:
        """Return the rotary table of each layer, None for those without rotary embedding."""
        table = self.ops.rotary_table(self.shape.rotary, max_positions)
        return [table if has_rotary else None for has_rotary in self.shape.has_rotary]

    def forward(self, step: StepBuffers) -> None:
        """From step.token_ids to step.hidden, through all layers."""
        ops, eps, rows = self.ops, self.shape.norm_eps, step.num_tokens
        residual, delta = self._work.residual, self._work.delta
        # Each half of a layer reads the normed stream and leaves what it adds in `delta`; adding
        # that and norming the sum for the next half is one operation. The last of these is the
        # final norm, so the normed stream lives in step.hidden throughout.
        normed = step.hidden
        for batch in step.groups:
            self.attention.prepare(batch)
        ops.embedding(residual, step.token_ids, self._embedding, rows)
        ops.rms_norm(normed, residual, self._layers[0].input_norm, eps, rows)
        for layer, cache, batch in zip(self._layers, step.caches, step.batches, strict=True):
            self._attend(layer, cache, batch, step)
            ops.add_rms_norm(normed, residual, delta, layer.post_norm, eps, rows)
            self._transform(layer, normed, rows)
            ops.add_rms_norm(normed, residual, delta, layer.next_norm, eps, rows)

    def _attend(self, layer: Layer, cache: Any, batch: AttentionBatch, step: StepBuffers) -> None:
        """Leave in `delta` what tokens learn from those before them."""
        ops, work, rows = self.ops, self._work, step.num_tokens
        ops.linear(work.qkv, step.hidden, layer.qkv, layer.qkv_bias, rows)
        if layer.q_norm is not None and layer.k_norm is not None:
            ops.rms_norm(work.q, work.q, layer.q_norm, self.shape.norm_eps, rows)
            ops.rms_norm(work.k, work.k, layer.k_norm, self.shape.norm_eps, rows)
        if layer.table is not None:
            ops.rotary(work.q, work.k, step.positions, layer.table, rows)
        self.attention.write(cache, work.k, work.v, batch)
        self.attention.forward(work.attended, work.q, cache, layer.attention, batch)
        ops.linear(work.delta, work.attended_flat, layer.output, layer.output_bias, rows)
        if self._num_ranks > 1:
            ops.all_reduce(work.delta, rows)

    def _transform(self, layer: Layer, normed: Tensor, rows: Count) -> None:
        """Leave in `delta` what the gated MLP makes of each token on its own."""
        ops, work = self.ops, self._work
        ops.linear(work.gate_up, normed, layer.gate_up, layer.gate_up_bias, rows)
        self._activate(rows)
        ops.linear(work.delta, work.activated, layer.down, layer.down_bias, rows)
        if self._num_ranks > 1:
            ops.all_reduce(work.delta, rows)

    def _activate(self, rows: Count) -> None:
        """Gate what the MLP is between its linears."""
        self.ops.silu_mul(self._work.activated, self._work.gate_up, rows)

    def project(self, out: Tensor, hidden: Tensor, rows: Count) -> None:
        """Write logits: out = head(hidden).  hidden: [cap, hidden], out: [cap, vocab]."""
        if self._logits is None:
            self.ops.linear(out, hidden, self._head, None, rows)
            return
        if len(out) > len(self._logits):  # whoever asks for more rows than a step has
            self._logits = self._logits.new_zeros(len(out), self._logits.shape[1])
        self.ops.linear(self._logits, hidden, self._head, None, rows)
        self.ops.all_gather(out, self._logits, rows)

    def logits(self, step: StepBuffers) -> None:
        """Gather step.hidden at step.logit_rows and project into step.logits."""
        gathered = self._work.gathered
        self.ops.gather_rows(gathered, step.hidden, step.logit_rows, step.num_rows)
        self.project(step.logits, gathered, step.num_rows)
