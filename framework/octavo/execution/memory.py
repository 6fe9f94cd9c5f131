"""Whether weights fit, and how many KV blocks: an arithmetic that can be shown to the user.

Knows bytes. Does not know tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import CapacityError

#: without a setting, KV takes at most this much, and at most this share of what is available
DEFAULT_MAX_BYTES = 4 * 2**30
DEFAULT_SHARE = 0.5
#: and leaves at least this much to the buffers of a step, tables, threads and the tokenizer
DEFAULT_RESERVE_BYTES = 64 * 2**20
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class KVDemand:
    """What the cache is to hold. Lengths in tokens, `bytes_per_block` over all layers.

    Each sequence has `num_groups` tables of blocks.
    """

    bytes_per_block: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    num_groups: int = 1


def num_blocks_for(
    demand: KVDemand, available_bytes: int, *, wanted_bytes: int | None, wanted_blocks: int | None
) -> int:
    """Return the number of blocks, the null block counted.

    `wanted_blocks` (of use, without the null block) wins over `wanted_bytes`; else a share of
    the available memory, and never more than all sequences at full length need. Raises
    `CapacityError` with the arithmetic when not even two blocks fit.
    """
    per_table = -(-demand.max_model_len // demand.block_size)
    if wanted_blocks is not None:
        num_blocks, wanted_bytes = wanted_blocks, None
    else:
        budget = wanted_bytes
        if budget is None:
            share = int(available_bytes * DEFAULT_SHARE)
            budget = max(0, min(DEFAULT_MAX_BYTES, share, available_bytes - DEFAULT_RESERVE_BYTES))
        most = demand.max_num_seqs * demand.num_groups * per_table
        num_blocks = min(most, budget // demand.bytes_per_block)
    of_block = f"one block of {demand.block_size} tokens takes {demand.bytes_per_block} bytes"
    if num_blocks < 1 and wanted_bytes is not None:
        raise CapacityError(
            f"kv-cache-memory-bytes {wanted_bytes} is too little for a KV cache",
            of_block,
            f"the least is {demand.bytes_per_block}; a context of {demand.max_model_len} tokens "
            f"takes {per_table * demand.num_groups * demand.bytes_per_block}",
        )
    needed = (max(1, num_blocks) + 1) * demand.bytes_per_block
    if num_blocks < 1 or needed > available_bytes:
        reserve = "" if num_blocks else f"beside it is needed: {DEFAULT_RESERVE_BYTES // _MIB} MiB"
        raise CapacityError(
            "the KV cache does not fit into memory",
            of_block,
            f"{max(1, num_blocks)} blocks and the null block: {needed / _MIB:.1f} MiB",
            reserve,
            _available(available_bytes),
            "lower num-gpu-blocks-override, kv-cache-memory-bytes or max-model-len",
        )
    return num_blocks + 1


def check_weights_fit(packed_bytes: int, file_bytes: int, available_bytes: int) -> None:
    """Raise `CapacityError` with the arithmetic where weights take more than is available.

    They are not begun then: a cgroup kills who takes too much, without a word. `file_bytes` is
    what they take in the file, `packed_bytes` what this process will keep of them.
    """
    if packed_bytes > available_bytes:
        raise CapacityError(
            "the weights do not fit into memory",
            f"in the file: {file_bytes / _MIB:.1f} MiB; "
            f"as the ops keep them: {packed_bytes / _MIB:.1f} MiB",
            _available(available_bytes),
            "take a file of fewer bits, ops that do not decode it, or raise the limit",
        )


def _available(num_bytes: int) -> str:
    return f"available: {num_bytes / _MIB:.1f} MiB (`octavo collect-env` says what limits it)"
