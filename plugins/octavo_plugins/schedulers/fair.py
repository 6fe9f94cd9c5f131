"""Fair shares of tokens between clients: the virtual token counter.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024).
"""

from __future__ import annotations

from collections import defaultdict

from pydantic import Field

from octavo.interfaces.scheduler import RequestView, SchedulerPolicy, SchedulerView
from octavo.plugin.options import ComponentOptions

#: what a generated token counts, one of a prompt being 1, as in the paper; and when more clients
#: than that are known all are equal again, so that no server remembers for ever
OUTPUT_WEIGHT, _MOST_CLIENTS = 2.0, 100_000


class FairOptions(ComponentOptions):
    """Options of `fair`."""

    by: str = Field("user", description="what tells clients apart: user or session_id")


class Fair(SchedulerPolicy):
    """Serve the client that has had the fewest tokens, its own requests by arrival.

    While two clients both have requests waiting, what they were served differs by
    2 max(p L, q M) at most (theorem 4.4): p and q weigh tokens of prompts and generated ones, L is
    the longest prompt, M what the running requests can have together. A client that comes back
    starts at the head's count, so that nothing is saved up; when nobody is left all are equal.
    A prompt counts from its admission on, without what is cached; what is computed again after a
    preemption counts again. Requests that do not say whose they are are one client's.
    """

    Options = FairOptions

    is_order_static = False

    def __init__(self, options: FairOptions | None = None) -> None:
        super().__init__(options or FairOptions())
        self._served: defaultdict[object, float] = defaultdict(float)
        self._due: defaultdict[object, float] = defaultdict(float)  # admitted, not yet computed
        self._step = self._newest = -1

    def _client(self, request: RequestView) -> object:
        return request.metadata.get(self.options.by)

    def order(self, request: RequestView, view: SchedulerView) -> float:
        """Order by the client's count, with what is due of prompts."""
        client, before, served = self._client(request), view.waiting or view.running, self._served
        if view.step != self._step:
            self._step, self._due = view.step, defaultdict(float)
            for one in view.running:
                self.admit(one, view)
        if request.sequence_number > self._newest:
            self._newest = request.sequence_number
            if not before or len(served) > _MOST_CLIENTS:
                served.clear()
            elif client not in map(self._client, view.waiting):
                served[client] = max(served[client], served[self._client(before[0])])
        return served[client] + self._due[client]

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        """Admit, and count the prompt from now on."""
        del view
        num_due = max(0, request.num_prompt_tokens - request.num_computed_tokens)
        self._due[self._client(request)] += num_due
        return True

    def on_tokens(self, request: RequestView, num_tokens: int, view: SchedulerView) -> None:
        """Count what was computed."""
        del view
        num_beyond = max(0, request.num_computed_tokens - request.num_prompt_tokens)
        more = (OUTPUT_WEIGHT - 1) * min(num_beyond, num_tokens)
        self._served[self._client(request)] += num_tokens + more
