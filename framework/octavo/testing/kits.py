"""Which module holds the invariants of which kind.

Knows names only, so that a kit is imported when it is used.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from octavo.errors import UnknownComponentError, did_you_mean
from octavo.plugin.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.testing.invariants import Promises

#: of every kind; each module has `promises`
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
        "grammar": "octavo.testing.grammars",
        "proposer": "octavo.testing.proposers",
        "adapter": "octavo.testing.tensors.adapters",
        "architecture": "octavo.testing.tensors.architectures",
        "weights": "octavo.testing.weights",
        "source": "octavo.testing.sources",
        "tokenizer": "octavo.testing.tokenizers",
        "dialect": "octavo.testing.dialects",
        "parser": "octavo.testing.parsers",
    }
)


def promises_of(kind: str) -> Promises:
    """Return the invariants of a kind.

    Raises UnknownComponentError for no kind.
    """
    if kind not in KINDS:
        raise UnknownComponentError(
            f"unknown kind '{kind}'",
            did_you_mean(kind, KINDS),
            f"kinds: {', '.join(KINDS)}",
        )
    promises: Promises = importlib.import_module(KITS[kind]).promises
    return promises
