"""One rank's share of a decoder that is split between processes.

Heads and the inner width of the MLP are split, so that queries, keys, values, gate and up lose
outputs, and the two linears that lead back into the stream lose inputs: what the ranks find there
is summed. Embedding and norms are whole on every rank; the head's outputs are split where their
number allows (Shoeybi et al. 2019, "Megatron-LM").

Knows sizes and ranks. Does not know weights, processes, or how sums are made.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.interfaces.ops import Collective
    from octavo_plugins.architectures.decoder_config import DecoderConfig


def num_ranks(collective: Collective | None) -> int:
    """Return how many ranks share a model: 1 without a collective."""
    return 1 if collective is None else collective.size


def share_of(config: DecoderConfig, size: int) -> DecoderConfig:
    """Return the sizes of what each of `size` ranks computes.

    Raises ConfigError that names the valid sizes, unless heads and inner width can be shared
    equally: a head is never cut.
    """
    shared = gcd(config.num_heads, config.num_kv_heads, config.intermediate_size)
    if shared % size:
        valid = [str(one) for one in range(1, shared + 1) if shared % one == 0]
        raise ConfigError(
            f"a model with {config.num_heads} heads and {config.num_kv_heads} of keys and values "
            f"cannot be split between {size} ranks (tensor-parallel-size)",
            f"the inner width of its MLP is {config.intermediate_size}",
            f"valid sizes: {', '.join(valid)}",
        )
    return replace(
        config,
        num_heads=config.num_heads // size,
        num_kv_heads=config.num_kv_heads // size,
        intermediate_size=config.intermediate_size // size,
    )


def is_head_split(config: DecoderConfig, size: int) -> bool:
    """Return whether each of `size` ranks computes a share of the logits, not all of them."""
    return size > 1 and config.vocab_size % size == 0
