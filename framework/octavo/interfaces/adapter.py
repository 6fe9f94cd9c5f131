"""The adapter kind: small changes to weights that single requests bring along.

Knows files of adapters and the tensors in them. Does not know layers' implementations, batches
or HTTP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """An adapter to be loaded: where it is, under which name.

    Where there is a `root`, no file may lie outside of that folder, links followed.
    """

    name: str
    path: str
    root: str | None = None


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """One adapter in a request, multiplied by `scale` beside the adapter's own factor.

    `digest` is what preparing the adapter yielded, set by the engine before the request runs: a
    request keeps the content that it was prepared with, whatever becomes of the files.
    """

    spec: AdapterSpec
    scale: float = 1.0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class LowRank:
    """The change of one weight [out, in]: `factor * b @ a`, in float32."""

    a: NDArray[np.float32]  # [rank, in]
    b: NDArray[np.float32]  # [out, rank]
    factor: float


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """An adapter as it was read.

    `deltas` by the name of the checkpoint tensor that each changes
    (`model.layers.0.self_attn.q_proj.weight`). `digest` is a hash of everything that matters:
    equal digests are equal adapters.
    """

    digest: str
    deltas: Mapping[str, LowRank] = field(default_factory=dict)


class AdapterFormat(ABC):
    """Reads adapters from files. Loading never runs anything that a file holds.

    R1  what the files ask for and this cannot do (biases, other methods) is refused.
    R2  `read` may be called from any thread; what it returned does not change with the files.
    R3  it imports no torch: a server checks adapters before it starts the engine.
    R4  nothing that a file holds is run: a pickle in the place of a file is refused unread.
    R5  the changes are those that were written, of every tensor by its checkpoint's name.
    R6  a path without such an adapter, or with a damaged one, is refused with AdapterError, which
        names the path; `why_not`, `check` and `read` agree.
    R7  other content has another digest.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    def why_not(self, path: Path) -> list[str]:
        """Return why the path is no adapter of this format; empty when it looks like one."""

    def check(self, path: Path) -> None:
        """Raise AdapterError for what can be told to be wrong without reading weights."""
        del path

    @abstractmethod
    def read(self, path: Path) -> AdapterWeights:
        """Read it. Raises `octavo.errors.AdapterError` naming file and tensor."""
