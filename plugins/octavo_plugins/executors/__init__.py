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
        """Yield inline, ranks and simulated."""
        yield Component(
            name="inline",
            target="octavo_plugins.executors.inline:InlineExecutor",
            summary="in the engine's own process and thread",
            why_not="octavo_plugins.executors.choices:inline_why_not",
        )
        yield Component(
            name="ranks",
            target="octavo_plugins.executors.ranks:RanksExecutor",
            summary="tensor parallel: split between processes of this machine",
            why_not="octavo_plugins.executors.choices:ranks_why_not",
        )
        yield Component(
            name="simulated",
            target="octavo_plugins.executors.simulated:SimulatedExecutor",
            options="octavo_plugins.executors.simulated:SimulatedOptions",
            offers=frozenset({"by-name-only"}),
            summary="no model: steps take what a table says, in virtual time",
            why_not="octavo_plugins.executors.choices:simulated_why_not",
        )


plugin = Plugin()
