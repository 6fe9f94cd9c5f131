"""The stock allocators of KV blocks: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.allocator import Allocator


class Plugin(OctavoSpecs):
    """Declares the stock allocators of KV blocks."""

    def octavo_allocators(self) -> Iterator[Component[Allocator]]:
        """Yield paged, contiguous."""
        yield Component(
            name="paged",
            target="octavo_plugins.allocators.paged:PagedAllocator",
            summary="blocks on demand, shared between equal prefixes",
            offers=frozenset({"prefix-caching", "cache-groups"}),
        )
        yield Component(
            name="contiguous",
            target="octavo_plugins.allocators.contiguous:ContiguousAllocator",
            summary="reserves each request's maximum at once: the baseline for `paged`",
        )


plugin = Plugin()
