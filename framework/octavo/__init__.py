"""Octavo: an engine for LLM inference and serving in which every policy is a named component.

This module knows the public names and where each lives. Importing it imports none of them: a
name is loaded when it is first used, so that `import octavo` stays far from torch.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # mypy and editors take this as true; saves importing `typing`
if TYPE_CHECKING:
    from octavo.async_llm import AsyncLLM
    from octavo.errors import OctavoError
    from octavo.frontend.outputs import BeamSearchOutput, CompletionOutput, RequestOutput
    from octavo.frontend.pooling_outputs import (
        EmbeddingRequestOutput,
        PoolingRequestOutput,
        ScoringRequestOutput,
    )
    from octavo.hookspecs import OctavoSpecs
    from octavo.llm import LLM
    from octavo.lora import LoRARequest
    from octavo.plugin.component import Component
    from octavo.plugin.options import ComponentOptions, NoOptions
    from octavo.pooling_params import PoolingParams
    from octavo.sampling_params import BeamSearchParams, SamplingParams
    from octavo.structured_outputs import StructuredOutputsParams

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AsyncLLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "CompletionOutput",
    "Component",
    "ComponentOptions",
    "EmbeddingRequestOutput",
    "LoRARequest",
    "NoOptions",
    "OctavoError",
    "OctavoSpecs",
    "PoolingParams",
    "PoolingRequestOutput",
    "RequestOutput",
    "SamplingParams",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
    "__version__",
]

_HOME = {
    "LLM": "octavo.llm",
    "AsyncLLM": "octavo.async_llm",
    "BeamSearchOutput": "octavo.frontend.outputs",
    "BeamSearchParams": "octavo.sampling_params",
    "CompletionOutput": "octavo.frontend.outputs",
    "Component": "octavo.plugin.component",
    "ComponentOptions": "octavo.plugin.options",
    "EmbeddingRequestOutput": "octavo.frontend.pooling_outputs",
    "LoRARequest": "octavo.lora",
    "NoOptions": "octavo.plugin.options",
    "OctavoError": "octavo.errors",
    "OctavoSpecs": "octavo.hookspecs",
    "PoolingParams": "octavo.pooling_params",
    "PoolingRequestOutput": "octavo.frontend.pooling_outputs",
    "RequestOutput": "octavo.frontend.outputs",
    "SamplingParams": "octavo.sampling_params",
    "ScoringRequestOutput": "octavo.frontend.pooling_outputs",
    "StructuredOutputsParams": "octavo.structured_outputs",
}


def __getattr__(name: str) -> object:
    """Import a public name's module on first use (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        message = f"module 'octavo' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
