"""The engine: plan, submit, commit, with up to two steps in flight.

Knows requests, the scheduling core and an executor. Does not know text, tensors or HTTP. Not
thread-safe: one thread calls all methods.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from octavo.engine.committing import Committer
from octavo.engine.holds import Holds
from octavo.engine.messages import EngineInfo, EngineOutput, EngineRequest, EngineStats
from octavo.engine.request import Request
from octavo.errors import QueueFullError, RequestError
from octavo.faults import deadly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from octavo.engine.scheduled_step import ScheduledStep
    from octavo.engine.scheduling import SchedulingCore
    from octavo.interfaces.executor import Executor, Resource, StepHandle


#: how long to wait before a policy that admitted nobody is asked again
STALL_S = 0.005


class Engine:
    """Runs requests to their end.

    `depth` is how many steps may be planned ahead of the one whose result is awaited: 0 or 1.
    `clock` returns seconds; it is the only clock of the engine. `sleep` takes seconds: called when
    a policy admits nobody although nothing runs, so that waiting for it costs no processor.
    """

    def __init__(
        self,
        core: SchedulingCore,
        executor: Executor,
        info: EngineInfo,
        *,
        depth: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.core = core
        self.executor = executor
        self.info = info
        self._depth = depth
        self._clock = clock
        self._sleep = sleep
        self._committer = Committer(core)
        self._holds = Holds(executor)
        self._requests: dict[str, Request] = {}
        self._in_flight: deque[tuple[ScheduledStep, StepHandle]] = deque()
        self._num_added = 0
        self._num_steps = 0
        self._is_closed = False

    # ------------------------------------------------------------------ requests

    def add(self, source: EngineRequest) -> None:
        """Queue a request.

        Raises `QueueFullError` when too many wait, `RequestError` when it could never run, and
        `RequestFailedError` when the scheduler's policy cannot order it.
        """
        if source.request_id in self._requests:
            raise RequestError(f"request id {source.request_id!r} is in use", param="request_id")
        limit = self.info.max_num_queued_reqs
        if len(self.core.waiting) >= limit:
            raise QueueFullError(
                f"{len(self.core.waiting)} requests are waiting, the most that are accepted",
                "try again later, or raise max-num-queued-reqs",
            )
        self._check_feasible(source)
        request = Request(source, self._num_added, len(self.core.allocator.context.groups))
        self._holds.prepare(request)
        self._num_added += 1
        self.core.add(request)
        self._requests[source.request_id] = request

    def _check_feasible(self, source: EngineRequest) -> None:
        needed = len(source.prompt_token_ids) + source.max_tokens
        available = self.core.allocator.capacity_tokens
        if needed > available:
            raise RequestError(
                f"the request needs room for {needed} tokens "
                f"({len(source.prompt_token_ids)} in the prompt, {source.max_tokens} to generate) "
                f"and the KV cache holds {available}",
                "shorten the prompt, lower max_tokens, or give the cache more memory",
                param="max_tokens",
            )

    def abort(self, request_ids: Iterable[str]) -> list[EngineOutput]:
        """End requests wherever they stand; unknown ids are ignored. Returns their last outputs."""
        outputs = []
        for request_id in request_ids:
            request = self._requests.pop(request_id, None)
            if request is not None:
                self._holds.forget(request)
                outputs.append(self._committer.finish(request, "abort"))
        return outputs

    def prepare(self, resource: Resource) -> Future[str]:
        """Make ready what requests will need, before one brings it; as `Executor.prepare`."""
        return self.executor.prepare(resource)

    def discard(self, resource: Resource) -> None:
        """Forget what no request is to bring any more; those that have it go on."""
        self.executor.discard(resource)

    def hold(self, request_id: str, reason: str) -> None:
        """Skip a waiting request until `release`; a running one goes on."""
        self._requests[request_id].held_by.add(reason)

    def release(self, request_id: str, reason: str) -> None:
        """Take one reason to wait away; unknown ids are ignored (the request may be gone)."""
        request = self._requests.get(request_id)
        if request is not None:
            request.held_by.discard(reason)

    # ------------------------------------------------------------------ the loop

    @property
    def has_work(self) -> bool:
        """Return whether `step` would do anything (held requests do not count)."""
        if self._in_flight or len(self.core.running) or self._holds.has_news:
            return True
        if self.executor.failed.done():  # which `step` then says
            return True
        return any(not request.held_by for request in self.core.waiting)

    def step(self) -> list[EngineOutput]:
        """Plan and submit as far as `depth` allows, then commit the oldest step.

        Returns the news of its requests, possibly none. Raises `EngineDeadError` when the
        executor fails as a whole. Whatever it raises, every request is lost then.
        """
        if self.executor.failed.done():
            with deadly("the executor"):
                self.executor.failed.result()
        refused = self._settle()
        while len(self._in_flight) <= self._depth:
            scheduled = self.core.plan(self._clock())
            if scheduled is None:
                break
            with deadly("the executor"):
                handle = self.executor.submit(scheduled.plan)
            self._in_flight.append((scheduled, handle))
        if not self._in_flight:
            if self.has_work and not refused:
                self._sleep(STALL_S)
            return refused
        scheduled, handle = self._in_flight.popleft()
        with deadly("the executor"):
            result = handle.result()
        outputs = self._committer.commit(scheduled, result)
        for output in outputs:
            if output.finish_reason is not None:
                self._requests.pop(output.request_id, None)
        self._num_steps += 1
        return refused + outputs

    def _settle(self) -> list[EngineOutput]:
        """Release held requests whose resources are there, and end those that cannot have them."""
        refused = []
        for request, error in self._holds.settle():
            self._requests.pop(request.request_id, None)
            refused.append(self._committer.refuse(request, error))
        return refused

    def is_held(self, request_id: str) -> bool:
        """Return whether a request waits for something beside its turn."""
        request = self._requests.get(request_id)
        return request is not None and bool(request.held_by)

    def wait(self) -> bool:
        """Sleep until a held request can go on. False when none waits for that."""
        return self._holds.wait()

    def on_ready(self, call: Callable[[], None]) -> None:
        """Have `call` called, from any thread, when a held request can go on, or none ever can."""
        self._holds.on_ready = call
        self.executor.failed.add_done_callback(lambda _: call())

    # ------------------------------------------------------------------ facts

    @property
    def predicted_step_ms(self) -> float:
        """Return how long a full step takes at most, by the measured costs."""
        limits = self.core.limits
        worst = self.core.costs.predict_ms(limits.max_num_batched_tokens)
        return worst if limits.max_step_ms is None else min(worst, limits.max_step_ms)

    def stats(self) -> EngineStats:
        """Return a snapshot."""
        counts = self.core.allocator.counts()
        committer = self._committer
        return EngineStats(
            num_running=len(self.core.running),
            num_waiting=len(self.core.waiting),
            kv_usage=counts.used / max(1, counts.total),
            num_blocks=counts.total,
            step=self._num_steps,
            prompt_tokens=committer.num_prompt_tokens,
            generated_tokens=committer.num_generated_tokens,
            preemptions=self.core.num_preemptions,
            prefix_queries_tokens=self.core.num_queried_tokens,
            prefix_hits_tokens=self.core.num_hit_tokens,
            draft_tokens=self.core.speculator.num_drafts,
            accepted_tokens=self.core.speculator.num_accepted,
            finished=dict(committer.finished_counts),
        )

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False when some blocks are in use (those go when freed)."""
        return self.core.allocator.reset_cache()

    def close(self) -> None:
        """Abort everything and release the executor; twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self.abort(list(self._requests))
        self._in_flight.clear()
        self.executor.close()
