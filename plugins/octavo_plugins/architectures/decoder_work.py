"""The buffers between the operations of a decoder's layers.

Knows sizes. Does not know weights, the order of operations or what the numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from torch import Tensor


class DecoderSizes(Protocol):
    """The sizes of a decoder that its buffers depend on."""

    @property
    def hidden_size(self) -> int:
        """Return the width of the stream."""

    @property
    def intermediate_size(self) -> int:
        """Return the width of an MLP between its linears."""

    @property
    def num_heads(self) -> int:
        """Return the number of heads of queries."""

    @property
    def num_kv_heads(self) -> int:
        """Return the number of heads of keys and values."""

    @property
    def head_dim(self) -> int:
        """Return the width of a head."""


@dataclass(slots=True)
class Work:
    """The buffers between operations, shared by all layers; q, k and v are views of `qkv`."""

    residual: Tensor  # [max_tokens, hidden]: the stream that every layer adds to
    delta: Tensor  # [max_tokens, hidden]: what half a layer adds to the stream
    qkv: Tensor  # [max_tokens, (heads + 2 * kv_heads) * head_dim]
    q: Tensor  # [max_tokens, heads, head_dim]
    k: Tensor  # [max_tokens, kv_heads, head_dim]
    v: Tensor  # [max_tokens, kv_heads, head_dim]
    attended: Tensor  # [max_tokens, heads, head_dim]
    attended_flat: Tensor  # the same memory as [max_tokens, heads * head_dim]
    gate_up: Tensor  # [max_tokens, 2 * intermediate]
    activated: Tensor  # [max_tokens, intermediate]
    gathered: Tensor  # [max_rows, hidden]


def make_work(shape: DecoderSizes, dtype: torch.dtype, max_tokens: int, max_rows: int) -> Work:
    """Return the buffers of a decoder, all zero."""

    def buffer(*size: int) -> Tensor:
        # zeros, so that a kernel that works in whole tiles of rows never meets a NaN
        return torch.zeros(size, dtype=dtype)

    heads, kv_heads, head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
    qkv = buffer(max_tokens, (heads + 2 * kv_heads) * head_dim)
    by_head = qkv.view(max_tokens, heads + 2 * kv_heads, head_dim)
    attended = buffer(max_tokens, heads, head_dim)
    return Work(
        residual=buffer(max_tokens, shape.hidden_size),
        delta=buffer(max_tokens, shape.hidden_size),
        qkv=qkv,
        q=by_head[:, :heads],
        k=by_head[:, heads : heads + kv_heads],
        v=by_head[:, heads + kv_heads :],
        attended=attended,
        attended_flat=attended.view(max_tokens, heads * head_dim),
        gate_up=buffer(max_tokens, 2 * shape.intermediate_size),
        activated=buffer(max_tokens, shape.intermediate_size),
        gathered=buffer(max_rows, shape.hidden_size),
    )
