"""How many blocks of KV there are, and what is said where there is no room for any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.errors import CapacityError
from octavo.execution.memory import KVDemand, check_weights_fit, num_blocks_for

MIB = 2**20
DEMAND = KVDemand(bytes_per_block=MIB, block_size=16, max_model_len=64, max_num_seqs=2)


def blocks(available_mib, wanted_bytes=None, wanted_blocks=None):
    return num_blocks_for(
        DEMAND, available_mib * MIB, wanted_bytes=wanted_bytes, wanted_blocks=wanted_blocks
    )


def test_a_share_of_what_is_available_or_what_was_asked_for():
    assert blocks(68) == 4 + 1, "64 MiB are left for all else"
    assert blocks(100) == 8 + 1, "all sequences at full length need no more"
    assert num_blocks_for(
        replace(DEMAND, max_num_seqs=100), 200 * MIB, wanted_bytes=None, wanted_blocks=None
    ) == (100 + 1)
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
    [(1, None, 1, "2.0"), (64, None, 1, "2.0"), (5, 7, 7, "8.0")],
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
        + ("" if wanted_blocks else "  beside it is needed: 64 MiB\n")
        + f"  available: {available_mib}.0 MiB (`octavo collect-env` says what limits it)\n"
        "  lower num-gpu-blocks-override, kv-cache-memory-bytes or max-model-len"
    )


def test_weights_that_do_not_fit_are_shown_with_the_arithmetic():
    check_weights_fit(4 * MIB, MIB, 4 * MIB)
    with pytest.raises(CapacityError) as caught:
        check_weights_fit(4 * MIB, MIB, 3 * MIB)

    assert str(caught.value) == (
        "the weights do not fit into memory\n"
        "  in the file: 1.0 MiB; as the ops keep them: 4.0 MiB\n"
        "  available: 3.0 MiB (`octavo collect-env` says what limits it)\n"
        "  take a file of fewer bits, ops that do not decode it, or raise the limit"
    )
