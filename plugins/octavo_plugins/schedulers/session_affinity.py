"""First come, first served, but a session that was just served goes on at once (vllm #51384)."""

from __future__ import annotations

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions


class SessionAffinityOptions(ComponentOptions):
    """Options of `session-affinity`."""

    by: str = Field("session_id", description="what tells sessions apart: session_id or user")
    head_start_s: float = Field(
        2.0, ge=0, description="how much earlier a request of a warm session counts as come"
    )
    ttl_s: float = Field(60.0, gt=0, description="how long after its last token a session is warm")
    min_cached_tokens: int = Field(16, ge=1, description="what must be cached of the request")


class SessionAffinity(SchedulerPolicy):
    """Serve by arrival, with a head start for what goes on where the cache still is.

    A session's next request comes before its blocks are evicted. Nobody is overtaken by those
    that come more than the head start later.
    """

    Options = SessionAffinityOptions

    is_order_static = False

    def __init__(self, options: SessionAffinityOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or SessionAffinityOptions()
        self._served_s: dict[object, float] = {}  # the session served longest ago comes first

    def order(self, request: RequestView, view: SchedulerView) -> float:
        """Order by arrival, less the head start."""
        options, session = self._options, request.metadata.get(self._options.by)
        is_warm = view.now_s - self._served_s.get(session, float("-inf")) <= options.ttl_s
        if is_warm and view.num_cached_tokens(request) >= options.min_cached_tokens:
            return request.arrival_s - options.head_start_s
        return request.arrival_s

    def on_tokens(self, request: RequestView, num_tokens: int, view: SchedulerView) -> None:
        """Note when the session was served, and forget those that are cold."""
        del num_tokens
        if (session := request.metadata.get(self._options.by)) is not None:
            self._served_s.pop(session, None)
            self._served_s[session] = view.now_s
            while view.now_s - next(iter(self._served_s.values())) > self._options.ttl_s:
                del self._served_s[next(iter(self._served_s))]
