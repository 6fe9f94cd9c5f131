"""The stock weight formats: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.weights import WeightsFormat


class Plugin(OctavoSpecs):
    """Declares the stock weight formats."""

    def octavo_weights(self) -> Iterator[Component[WeightsFormat]]:
        """Yield safetensors, gguf, dummy."""
        yield Component(
            name="safetensors",
            target="octavo_plugins.weights.safetensors_format:SafetensorsFormat",
            summary="*.safetensors, one file or sharded with an index",
        )
        yield Component(
            name="gguf",
            target="octavo_plugins.weights.gguf_format:GgufFormat",
            summary="*.gguf, one file or split; quantised blocks are kept",
        )
        yield Component(
            name="dummy",
            target="octavo_plugins.weights.dummy:DummyFormat",
            offers=frozenset({"by-name-only"}),
            summary="random weights of the right shapes, for tests and timing",
        )


plugin = Plugin()
