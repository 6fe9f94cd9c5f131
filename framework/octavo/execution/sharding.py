"""One rank's share of a checkpoint's tensors: its rows, or its columns, and nothing else.

Rows lie one after the other in a file, and columns in blocks of some weights each. A share that
begins or ends inside a block is decoded, the blocks it touches alone, and kept as float32.

Knows blocks and ranks. Does not know how a block is decoded, nor what a tensor is for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from octavo.errors import ModelLoadError
from octavo.interfaces.weights import BLOCK_TYPES

if TYPE_CHECKING:
    from octavo.interfaces.ops import Collective, OpSet
    from octavo.interfaces.weights import WeightBlocks

logger = logging.getLogger(__name__)


def share_of_blocks(
    blocks: WeightBlocks, split: Literal["none", "rows", "columns"], ops: OpSet
) -> WeightBlocks:
    """Return what the rank of `ops.collective` multiplies of a tensor: all of it with one rank.

    The rows of a vector are its elements. Raises ModelLoadError when the ranks cannot share
    equally.
    """
    collective = ops.collective
    if split == "none" or collective is None or collective.size == 1:
        return blocks
    is_vector = len(blocks.shape) == 1
    is_cut_along_rows = split == "rows" and not is_vector
    length = blocks.num_rows if is_cut_along_rows else blocks.columns
    start, stop = share_of_range(length, collective, blocks.name)
    return blocks.rows(start, stop) if is_cut_along_rows else _columns(blocks, start, stop, ops)


def share_of_range(length: int, collective: Collective, name: str) -> tuple[int, int]:
    """Return where a rank's equal share of `length` starts and stops. Raises ModelLoadError."""
    if length % collective.size:
        raise ModelLoadError(
            f"{collective.size} ranks cannot share '{name}' equally: its length is {length}"
        )
    share = length // collective.size
    return collective.rank * share, (collective.rank + 1) * share


def _columns(blocks: WeightBlocks, start: int, stop: int, ops: OpSet) -> WeightBlocks:
    group = BLOCK_TYPES[blocks.block_type].group
    if start % group == 0 and stop % group == 0:
        return blocks.cut_columns(start, stop)
    first = start // group * group
    touched = blocks.cut_columns(first, -(-stop // group) * group)
    logger.debug(
        "%s is kept as float32: a rank's share ends inside a block of %s",
        blocks.name,
        blocks.block_type,
    )
    return ops.decode(touched).cut_columns(start - first, stop - first)
