"""Which engines there are, and where. Imports none of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo_peers.engines.engine import Engine
    from octavo_peers.work import Job


@dataclass(frozen=True)
class EngineEntry:
    """One engine: the class that drives it, and the library that must be importable.

    One that does not read GGUF is given a folder in transformers' layout.
    """

    name: str
    target: str
    library: str
    reads_gguf: bool = True

    def load(self, job: Job) -> Engine:
        """Import the engine and load the job's model."""
        module, _, name = self.target.partition(":")
        engine: Engine = getattr(importlib.import_module(module), name)(job)
        return engine


_ALL: Final = (
    EngineEntry("octavo", "octavo_peers.engines.octavo:OctavoEngine", "octavo"),
    EngineEntry("llamacpp", "octavo_peers.engines.llamacpp:LlamaCppEngine", "llama_cpp"),
    EngineEntry("openvino", "octavo_peers.engines.openvino:OpenVinoEngine", "openvino_genai"),
    EngineEntry("vllm", "octavo_peers.engines.vllm:VllmEngine", "vllm", reads_gguf=False),
    EngineEntry(
        "transformers",
        "octavo_peers.engines.transformers:TransformersEngine",
        "transformers",
        reads_gguf=False,
    ),
)

#: by name; the first is the one that others are compared with
ENGINES: Final[Mapping[str, EngineEntry]] = MappingProxyType({one.name: one for one in _ALL})
OCTAVO: Final = _ALL[0].name
