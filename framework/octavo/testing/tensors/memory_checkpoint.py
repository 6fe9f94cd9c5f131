"""A checkpoint of float32 tensors in memory.

Knows names, tensors and a config. Does not know files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from octavo.errors import ModelLoadError
from octavo.interfaces.weights import Checkpoint, ModelDescription
from octavo.testing.tensors.op_cases import blocks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.interfaces.weights import WeightBlocks


class MemoryCheckpoint(Checkpoint):
    """Holds copies of tensors, which are given out as float32 blocks that nobody may write."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super().__init__(ModelDescription(Path("memory"), dict(config)))
        self.tensors = dict(tensors)

    def names(self) -> list[str]:
        """Return the names, in the order in which they were given."""
        return list(self.tensors)

    def blocks(self, name: str) -> WeightBlocks:
        """Return one tensor. Raises ModelLoadError when there is none of this name."""
        if name not in self.tensors:
            raise ModelLoadError(f"there is no tensor '{name}' (in {self.path})")
        copy = self.tensors[name].detach().to(torch.float32, copy=True)
        return blocks_of(copy, name)

    def close(self) -> None:
        """Let go of the tensors."""
        self.tensors = {}
