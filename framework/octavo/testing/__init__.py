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
    from octavo.testing.evictions import EvictionSuite
    from octavo.testing.schedulers import SchedulerSuite

__all__ = ["AllocatorSuite", "EvictionSuite", "SchedulerSuite"]

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "AllocatorSuite": "octavo.testing.allocators",
        "EvictionSuite": "octavo.testing.evictions",
        "SchedulerSuite": "octavo.testing.schedulers",
    }
)


def __getattr__(name: str) -> Any:
    """Import a suite."""
    if name not in _MODULES:
        raise AttributeError(f"module 'octavo.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
