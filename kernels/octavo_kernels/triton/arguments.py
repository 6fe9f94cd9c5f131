"""The arguments of the Triton kernels, in groups.

A field that holds a tensor outside of a kernel holds a pointer inside. The groups named `*Shape`
are known when a kernel is compiled, and decide nothing about a batch.

Knows names and strides. Does not know Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Rows(NamedTuple):
    """Vectors by token and head, each contiguous; strides in elements."""

    data: Any
    token_stride: Any
    head_stride: Any


def rows_of(x: Tensor) -> Rows:
    """Describe x [tokens, heads, d] or [tokens, d]; the last dimension must be contiguous."""
    if x.stride(-1) != 1:
        raise ValueError(f"a row must be contiguous, got strides {tuple(x.stride())}")
    return Rows(x, x.stride(0), x.stride(1) if x.dim() > 2 else 0)  # noqa: PLR2004 - heads or none


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less than a positive number."""
    return 1 << (number - 1).bit_length()


class PagedKeys(NamedTuple):
    """The cache of one layer, contiguous, and the block tables of a batch."""

    k: Any
    v: Any
    tables: Any  # int32 [seqs, max_blocks]
    table_stride: Any


class Work(NamedTuple):
    """What to compute, as `attention_plan` lays it out, and the memory between the two kernels."""

    items: Any  # int32 [items, 8]
    merges: Any  # int32 [merges, 4]
    sums: Any  # float32 [part rows, head_dim]
    stats: Any  # float32 [part rows, 2]: the largest score, and the sum of weights


class Numbers(NamedTuple):
    """What a layer does to its scores, in powers of two.

    `scale` turns a product into a score, or into the argument of tanh where there is a cap;
    `cap` is what tanh is multiplied by. `window`: positions seen, its own included.
    """

    scale: Any
    cap: Any
    window: Any


class AttentionShape(NamedTuple):
    """Heads, block and tiles of a layer. `padded_dim` and `padded_ratio` are powers of two."""

    ratio: int
    padded_ratio: int
    kv_heads: int
    head_dim: int
    padded_dim: int
    block_size: int
    rows: int
    keys: int
    piece: int
    has_cap: bool


class RowShape(NamedTuple):
    """A vector's width, the power of two that holds it, and how many heads a token has."""

    width: int
    padded: int
    heads: int = 1


class RotaryShape(NamedTuple):
    """Heads of queries and keys, half of the dimensions that are rotated, and what holds those."""

    heads: int
    kv_heads: int
    half: int
    padded_half: int
