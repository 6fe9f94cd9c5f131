"""The stock executors: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.executor import Executor


class Plugin(OctavoSpecs):
    """Declares the stock executors."""

    def octavo_executors(self) -> Iterator[Component[Executor]]:
        """Yield inline."""
        yield Component(
            name="inline",
            target="octavo_plugins.executors.inline:InlineExecutor",
            summary="in the engine's own process and thread",
        )


plugin = Plugin()
