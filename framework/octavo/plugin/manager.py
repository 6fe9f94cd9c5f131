"""pluggy, set up for our hooks: it checks signatures now and notifies plugins later.

Each catalogue has a manager of its own. Knows `OctavoSpecs`. Does not know where plugins come
from, nor what they declare.
"""

from __future__ import annotations

from typing import Any

import pluggy

from octavo.hookspecs import OctavoSpecs

PREFIX = "octavo_"


class HookManager(pluggy.PluginManager):
    """Takes every method with our prefix that a plugin overrides as an implementation."""

    def __init__(self) -> None:
        super().__init__("octavo")
        self.add_hookspecs(OctavoSpecs)

    def parse_hookspec_opts(self, module_or_class: object, name: str) -> Any:  # noqa: ARG002
        """Mark the methods of the specs; no decorator is needed."""
        return {} if name.startswith(PREFIX) else None

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        """Mark what a plugin overrides; what it inherits is no implementation."""
        if not name.startswith(PREFIX):
            return None
        inherited = getattr(OctavoSpecs, name, None)
        return None if getattr(type(plugin), name, None) is inherited else {}
