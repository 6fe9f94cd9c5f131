"""The stock eviction orders: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.eviction import Eviction


class Plugin(OctavoSpecs):
    """Declares the stock eviction orders."""

    def octavo_evictions(self) -> Iterator[Component[Eviction]]:
        """Yield lru."""
        yield Component(
            name="lru",
            target="octavo_plugins.evictions.lru:Lru",
            summary="the block that was released longest ago goes first",
        )


plugin = Plugin()
