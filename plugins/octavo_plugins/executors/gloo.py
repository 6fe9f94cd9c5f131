"""Sums between processes of one machine, over torch.distributed's gloo.

Knows tensors and peers. Does not know models or plans.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed

from octavo.errors import EngineError
from octavo.interfaces.ops import Collective

if TYPE_CHECKING:
    from torch import Tensor

_LOOPBACK = Path("/sys/class/net/lo")


class PeerLostError(EngineError):
    """Another rank has gone, so that nothing can be summed any more."""


class GlooCollective(Collective):
    """The ranks of one group, each a process of this machine.

    What is sent never leaves the machine: gloo is bound to the loopback interface. Every rank adds
    all parts itself, in the order of the ranks, so that all hold the same bits.
    """

    def __init__(self, rank: int, size: int, folder: Path) -> None:
        self.rank, self.size = rank, size
        if _LOOPBACK.exists():
            os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK.name
        try:
            distributed.init_process_group(
                "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size
            )
        except RuntimeError as error:
            raise PeerLostError("the ranks of a split model did not meet", str(error)) from error

    def all_reduce(self, x: Tensor) -> None:
        """Replace x by the sum over ranks."""
        parts = x.new_empty(self.size, *x.shape)
        self.all_gather(parts, x)
        torch.add(parts[0], parts[1], out=x)
        for part in parts[2:]:
            x.add_(part)

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """Set out[r] to rank r's x."""
        try:
            distributed.all_gather(list(out.unbind()), x.contiguous())
        except RuntimeError as error:
            raise PeerLostError("another rank has gone", str(error)) from error
