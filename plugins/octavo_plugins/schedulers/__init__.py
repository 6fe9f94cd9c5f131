"""The stock scheduler policies: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.scheduler import SchedulerPolicy

_HERE = "octavo_plugins.schedulers"


class Plugin(OctavoSpecs):
    """Declares the stock scheduler policies."""

    def octavo_schedulers(self) -> Iterator[Component[SchedulerPolicy]]:
        """Yield fcfs, priority, and what people asked for beside them."""
        yield Component(
            name="fcfs",
            target=f"{_HERE}.fcfs:Fcfs",
            summary="first come, first served; the last to come is preempted first",
        )
        yield Component(
            name="priority",
            target=f"{_HERE}.priority:Priority",
            options=f"{_HERE}.priority:PriorityOptions",
            offers=frozenset({"priority"}),
            summary="lower `priority` first; the least urgent is preempted first",
        )
        yield from _by_users_and_classes()
        yield from _by_length_and_cache()


def _by_users_and_classes() -> Iterator[Component[SchedulerPolicy]]:
    yield Component(
        name="fair",
        target=f"{_HERE}.fair:Fair",
        options=f"{_HERE}.fair:FairOptions",
        summary="equal shares of tokens for all users (virtual token counter)",
    )
    yield Component(
        name="deadline",
        target=f"{_HERE}.deadline:Deadline",
        options=f"{_HERE}.deadline:DeadlineOptions",
        params=f"{_HERE}.params:DeadlineParams",
        summary="what is due first: by `ttft_ms` or `service_class` of each request",
    )
    yield Component(
        name="qos",
        target=f"{_HERE}.qos:Qos",
        options=f"{_HERE}.qos:QosOptions",
        params=f"{_HERE}.params:ServiceParams",
        summary="classes of service: urgent ones first, with seats left free for them",
    )
    yield Component(
        name="session-affinity",
        target=f"{_HERE}.session_affinity:SessionAffinity",
        options=f"{_HERE}.session_affinity:SessionAffinityOptions",
        summary="by arrival, with a head start for sessions that are still cached",
    )


def _by_length_and_cache() -> Iterator[Component[SchedulerPolicy]]:
    yield Component(
        name="longest-prefix",
        target=f"{_HERE}.longest_prefix:LongestPrefix",
        options=f"{_HERE}.longest_prefix:LongestPrefixOptions",
        summary="the request of which most is cached first",
    )
    yield Component(
        name="shortest-job",
        target=f"{_HERE}.shortest_job:ShortestJob",
        options=f"{_HERE}.shortest_job:ShortestJobOptions",
        summary="the shortest prompt and answer first, with ageing if wanted",
    )
    yield Component(
        name="shortest-residual",
        target=f"{_HERE}.shortest_residual:ShortestResidual",
        options=f"{_HERE}.shortest_residual:ShortestResidualOptions",
        summary="the least left to compute first; what is cached is not left",
    )
    yield Component(
        name="response-ratio",
        target=f"{_HERE}.response_ratio:ResponseRatio",
        options=f"{_HERE}.response_ratio:ResponseRatioOptions",
        summary="short jobs first, and ever longer ones as they wait (HRRN)",
    )


plugin = Plugin()
