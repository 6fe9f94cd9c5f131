"""Which module holds the invariants of which kind, and which interface these are about.

Knows names only, so that a kit is imported when it is used.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from octavo.errors import UnknownComponentError, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.testing.invariants import Promises

#: the interface of every kind
INTERFACES: Mapping[str, str] = MappingProxyType(
    {
        "platform": "octavo.interfaces.platform:Platform",
        "ops": "octavo.interfaces.ops:OpSet",
        "attention": "octavo.interfaces.attention:Attention",
        "executor": "octavo.interfaces.executor:Executor",
        "scheduler": "octavo.interfaces.scheduler:SchedulerPolicy",
        "allocator": "octavo.interfaces.allocator:Allocator",
        "eviction": "octavo.interfaces.eviction:Eviction",
        "sampler-stage": "octavo.interfaces.sampler:SamplerStage",
        "proposer": "octavo.interfaces.proposer:Proposer",
        "grammar": "octavo.interfaces.grammar:GrammarBackend",
        "adapter": "octavo.interfaces.adapter:AdapterFormat",
        "architecture": "octavo.interfaces.architecture:Architecture",
        "weights": "octavo.interfaces.weights:WeightsFormat",
        "source": "octavo.interfaces.source:ModelSource",
        "tokenizer": "octavo.interfaces.tokenizer:TokenizerFormat",
        "dialect": "octavo.interfaces.dialect:Dialect",
    }
)

#: kinds whose promises are tested; each module has `promises`
KITS: Mapping[str, str] = MappingProxyType(
    {
        "platform": "octavo.testing.platforms",
        "ops": "octavo.testing.tensors.ops",
        "attention": "octavo.testing.tensors.attentions",
        "executor": "octavo.testing.executors",
        "scheduler": "octavo.testing.schedulers",
        "allocator": "octavo.testing.allocators",
        "eviction": "octavo.testing.evictions",
        "sampler-stage": "octavo.testing.tensors.stages",
        "proposer": "octavo.testing.proposers",
        "weights": "octavo.testing.weights",
        "source": "octavo.testing.sources",
        "tokenizer": "octavo.testing.tokenizers",
    }
)


def promises_of(kind: str) -> Promises:
    """Return the invariants of a kind.

    Raises UnknownComponentError for no kind, UnsupportedError for one without a kit.
    """
    if kind not in INTERFACES:
        raise UnknownComponentError(
            f"unknown kind '{kind}'",
            did_you_mean(kind, INTERFACES),
            f"kinds: {', '.join(INTERFACES)}",
        )
    if kind not in KITS:
        raise UnsupportedError(
            f"there are no invariants of the kind '{kind}' yet",
            f"kinds that can be checked: {', '.join(KITS)}",
        )
    promises: Promises = importlib.import_module(KITS[kind]).promises
    return promises
