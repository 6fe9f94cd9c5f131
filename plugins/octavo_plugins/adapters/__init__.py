"""The stock adapter formats: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.adapter import AdapterFormat


class Plugin(OctavoSpecs):
    """Declares the stock adapter formats."""

    def octavo_adapters(self) -> Iterator[Component[AdapterFormat]]:
        """Yield lora."""
        yield Component(
            name="lora",
            target="octavo_plugins.adapters.lora:LoraFormat",
            summary="low-rank adapters in PEFT's folders",
        )


plugin = Plugin()
