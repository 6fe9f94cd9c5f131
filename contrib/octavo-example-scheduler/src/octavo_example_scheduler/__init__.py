"""An Octavo plugin that declares one scheduling policy, `sjf`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo import Component, OctavoSpecs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.interfaces.scheduler import SchedulerPolicy


class Plugin(OctavoSpecs):
    """Declares `sjf`; the module that implements it is imported when it is chosen."""

    def octavo_schedulers(self) -> Iterable[Component[SchedulerPolicy]]:
        """Declare shortest job first."""
        return [
            Component(
                name="sjf",
                target="octavo_example_scheduler.sjf:ShortestJobFirst",
                options="octavo_example_scheduler.sjf:ShortestJobFirstOptions",
                summary="shortest job first; a waiting request ages, so none starves",
            )
        ]


plugin = Plugin()
