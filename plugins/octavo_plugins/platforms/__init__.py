"""The stock platforms: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.platform import Platform


class Plugin(OctavoSpecs):
    """Declares the stock platforms."""

    def octavo_platforms(self) -> Iterator[Component[Platform]]:
        """Yield cpu."""
        yield Component(
            name="cpu",
            target="octavo_plugins.platforms.cpu:CpuPlatform",
            summary="this machine's processors and memory",
            # what a step leaves from one layer to the next stays in caches
            defaults={"max-num-batched-tokens": 512},
        )


plugin = Plugin()
