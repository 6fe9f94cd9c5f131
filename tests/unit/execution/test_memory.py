"""How many blocks of KV there are, and what is said where there is no room for any."""

from __future__ import annotations

import pytest

from octavo.errors import CapacityError
from octavo.execution.memory import KVDemand, num_blocks_for

MIB = 2**20
DEMAND = KVDemand(bytes_per_block=MIB, block_size=16, max_model_len=64, max_num_seqs=2)


def blocks(available_mib, wanted_bytes=None, wanted_blocks=None):
    return num_blocks_for(
        DEMAND, available_mib * MIB, wanted_bytes=wanted_bytes, wanted_blocks=wanted_blocks
    )


def test_a_share_of_what_is_available_or_what_was_asked_for():
    assert blocks(10) == 5 + 1
    assert blocks(100) == 8 + 1, "all sequences at full length need no more"
    assert blocks(100, wanted_bytes=3 * MIB) == 3 + 1
    assert blocks(100, wanted_bytes=3 * MIB, wanted_blocks=20) == 20 + 1


def test_too_few_bytes_are_told_what_is_the_least():
    with pytest.raises(CapacityError) as caught:
        blocks(100, wanted_bytes=1000)

    assert str(caught.value) == (
        "kv-cache-memory-bytes 1000 is too little for a KV cache\n"
        "  one block of 16 tokens takes 1048576 bytes\n"
        "  the least is 1048576; a context of 64 tokens takes 4194304"
    )


@pytest.mark.parametrize(
    ("available_mib", "wanted_blocks", "num_blocks", "needed_mib"),
    [(1, None, 1, "2.0"), (5, 7, 7, "8.0")],
)
def test_what_does_not_fit_is_shown_with_the_arithmetic(
    available_mib, wanted_blocks, num_blocks, needed_mib
):
    with pytest.raises(CapacityError) as caught:
        blocks(available_mib, wanted_blocks=wanted_blocks)

    assert str(caught.value) == (
        "the KV cache does not fit into memory\n"
        "  one block of 16 tokens takes 1048576 bytes\n"
        f"  {num_blocks} blocks and the null block: {needed_mib} MiB\n"
        f"  available: {available_mib}.0 MiB\n"
        "  lower num-gpu-blocks-override, kv-cache-memory-bytes or max-model-len"
    )
