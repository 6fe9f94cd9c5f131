"""The stock scheduler policies: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.scheduler import SchedulerPolicy


class Plugin(OctavoSpecs):
    """Declares the stock scheduler policies."""

    def octavo_schedulers(self) -> Iterator[Component[SchedulerPolicy]]:
        """Yield fcfs, priority."""
        yield Component(
            name="fcfs",
            target="octavo_plugins.schedulers.fcfs:Fcfs",
            summary="first come, first served; the last to come is preempted first",
        )
        yield Component(
            name="priority",
            target="octavo_plugins.schedulers.priority:Priority",
            options="octavo_plugins.schedulers.priority:PriorityOptions",
            offers=frozenset({"priority"}),
            summary="lower `priority` first; the least urgent is preempted first",
        )


plugin = Plugin()
