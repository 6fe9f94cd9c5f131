"""The stock eviction orders: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.eviction import Eviction

_HERE = "octavo_plugins.evictions"


class Plugin(OctavoSpecs):
    """Declares the stock eviction orders."""

    def octavo_evictions(self) -> Iterator[Component[Eviction]]:
        """Yield lru, lfu, arc, retention."""
        yield Component(
            name="lru",
            target="octavo_plugins.evictions.lru:Lru",
            summary="the block that was released longest ago goes first",
        )
        yield Component(
            name="lfu",
            target=f"{_HERE}.lfu:Lfu",
            summary="the block with the fewest hits goes first",
        )
        yield Component(
            name="arc",
            target=f"{_HERE}.arc:Arc",
            summary="recent or frequent blocks stay, whichever was missed more",
        )
        yield Component(
            name="retention",
            target=f"{_HERE}.retention:Retention",
            params=f"{_HERE}.params:RetentionParams",
            summary="blocks stay by `retention_priority` and `retention_s` of each request",
        )


plugin = Plugin()
