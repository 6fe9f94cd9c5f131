"""The conformance kit: what each kind of component promises, as tests that try to break it.

Six lines test a component of one's own:

    from octavo.testing import SchedulerSuite

    class TestMine(SchedulerSuite):
        component = "mine"

and `octavo plugins check scheduler:mine` does without any. Needs `octavo[test]`.

Each suite is imported when it is asked for. Knows their names.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.testing.allocators import AllocatorSuite
    from octavo.testing.dialects import DialectSuite
    from octavo.testing.evictions import EvictionSuite
    from octavo.testing.executors import ExecutorSuite
    from octavo.testing.grammars import GrammarSuite
    from octavo.testing.parsers import ParserSuite
    from octavo.testing.platforms import PlatformSuite
    from octavo.testing.proposers import ProposerSuite
    from octavo.testing.schedulers import SchedulerSuite
    from octavo.testing.sources import SourceSuite
    from octavo.testing.tensors.adapters import AdapterSuite
    from octavo.testing.tensors.architectures import ArchitectureSuite
    from octavo.testing.tensors.attentions import AttentionSuite
    from octavo.testing.tensors.ops import OpsSuite
    from octavo.testing.tensors.stages import StageSuite
    from octavo.testing.tokenizers import TokenizerSuite
    from octavo.testing.weights import WeightsSuite

__all__ = [
    "AdapterSuite",
    "AllocatorSuite",
    "ArchitectureSuite",
    "AttentionSuite",
    "DialectSuite",
    "EvictionSuite",
    "ExecutorSuite",
    "GrammarSuite",
    "OpsSuite",
    "ParserSuite",
    "PlatformSuite",
    "ProposerSuite",
    "SchedulerSuite",
    "SourceSuite",
    "StageSuite",
    "TokenizerSuite",
    "WeightsSuite",
]

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "AdapterSuite": "octavo.testing.tensors.adapters",
        "AllocatorSuite": "octavo.testing.allocators",
        "ArchitectureSuite": "octavo.testing.tensors.architectures",
        "AttentionSuite": "octavo.testing.tensors.attentions",
        "DialectSuite": "octavo.testing.dialects",
        "EvictionSuite": "octavo.testing.evictions",
        "ExecutorSuite": "octavo.testing.executors",
        "GrammarSuite": "octavo.testing.grammars",
        "OpsSuite": "octavo.testing.tensors.ops",
        "ParserSuite": "octavo.testing.parsers",
        "PlatformSuite": "octavo.testing.platforms",
        "ProposerSuite": "octavo.testing.proposers",
        "SchedulerSuite": "octavo.testing.schedulers",
        "SourceSuite": "octavo.testing.sources",
        "StageSuite": "octavo.testing.tensors.stages",
        "TokenizerSuite": "octavo.testing.tokenizers",
        "WeightsSuite": "octavo.testing.weights",
    }
)


def __getattr__(name: str) -> Any:
    """Import a suite."""
    if name not in _MODULES:
        raise AttributeError(f"module 'octavo.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
