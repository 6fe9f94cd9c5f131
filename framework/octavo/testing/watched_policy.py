"""Stands around a policy, and looks at each of its answers.

Knows the interface of policies. Does not know any policy, queues or budgets.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.testing.invariants import where_raised
from octavo.testing.probe_policy import ProbePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.interfaces.scheduler import RequestView, SchedulerView
    from octavo.testing.searching import Story

_SHOWN = (
    "request_id", "arrival_s", "sequence_number", "priority", "num_prompt_tokens",
    "num_output_tokens", "num_computed_tokens", "max_tokens",
)  # fmt: skip
_VIEW = (
    "now_s", "num_running", "num_waiting", "num_free_blocks", "num_total_blocks", "max_num_seqs",
)  # fmt: skip


class WatchedPolicy(SchedulerPolicy):
    """Asks the policy, and tells the story what is wrong with its answers (S9 to S11).

    A probe's answers are wrong on purpose, and are passed on as they are. For whoever looks at the
    steps is kept what was answered: `admitted`, `victims`, and `chunks` (offered, answered).
    `on_turn`, `on_victim` and `on_chunk` are called before it is asked.
    """

    def __init__(self, policy: SchedulerPolicy, story: Story) -> None:
        super().__init__()
        self.policy = policy
        self.is_probe = isinstance(policy, ProbePolicy)
        self.is_order_static = policy.is_order_static
        self.admitted: dict[str, bool] = {}
        self.chunks: dict[str, tuple[int, int]] = {}
        self.victims: list[str] = []
        self.on_turn: Callable[[RequestView, SchedulerView], None] | None = None
        self.on_victim: Callable[[Sequence[RequestView], SchedulerView], None] | None = None
        self.on_chunk: Callable[[RequestView, int], None] | None = None
        self._story = story
        self.problems: list[tuple[str, str]] = []
        self._keys: dict[str, Any] = {}

    @property
    def told(self) -> str:
        """Return how a probe decides, for the story; nothing of another policy."""
        return f", with {self.policy.how}" if isinstance(self.policy, ProbePolicy) else ""

    def look(self) -> None:
        """Tell the story the first thing that is wrong; the engine would have kept it from us."""
        for number, problem in self.problems:
            self._story.fail(number, problem)

    def admits(self, request_id: str) -> bool:
        """Return what `admit` last said of a request; True when it was not asked."""
        return self.admitted.get(request_id, True)

    def order(self, request: RequestView, view: SchedulerView) -> Any:
        """Return the key: one that can be compared with all others, and stays if it is static."""
        key = self._call("order", [request], view, lambda: self.policy.order(request, view))
        try:
            all(key < other or other <= key for other in self._keys.values())
        except TypeError as error:
            self._see("S9", f"order({request.request_id}) is {key!r}: {error}")
            return request.sequence_number
        self._keys[request.request_id] = copy.deepcopy(key)
        return key

    def admit(self, request: RequestView, view: SchedulerView) -> bool:
        """Return whether a request may start; asked again, its static key is the same."""
        if self.on_turn is not None:
            self.on_turn(request, view)
        if self.is_order_static and request.request_id in self._keys:
            key = self._call("order", [request], view, lambda: self.policy.order(request, view))
            before = self._keys[request.request_id]
            if key != before:
                self._see("S10", f"order({request.request_id}) was {before!r} and is {key!r}")
        answer = self._call("admit", [request], view, lambda: self.policy.admit(request, view))
        self.admitted[request.request_id] = bool(answer)
        return bool(answer)

    def victim(self, running: Sequence[RequestView], view: SchedulerView) -> int:
        """Return the index of one that runs."""
        if self.on_victim is not None:
            self.on_victim(running, view)
        index: Any = self._call("victim", running, view, lambda: self.policy.victim(running, view))
        if not isinstance(index, int) or not 0 <= index < len(running):
            self._see("S9", f"victim is {index!r}, of {len(running)} that run")
            index = index if self.is_probe else len(running) - 1
        self.victims.append(running[sorted((0, index, len(running) - 1))[1]].request_id)
        return int(index)

    def chunk(self, request: RequestView, num_tokens: int, view: SchedulerView) -> int:
        """Return how many tokens, of those that fit."""
        if self.on_chunk is not None:
            self.on_chunk(request, num_tokens)
        size = self._call(
            "chunk", [request], view, lambda: self.policy.chunk(request, num_tokens, view)
        )
        if not isinstance(size, int) or not 1 <= size <= num_tokens:
            self._see("S9", f"chunk({request.request_id}, {num_tokens}) is {size!r}")
            size = int(size) if self.is_probe else num_tokens
        self.chunks[request.request_id] = num_tokens, size
        return size

    def on_tokens(self, request: RequestView, num_tokens: int, view: SchedulerView) -> None:
        """Pass the note on."""
        self._call(
            "on_tokens", [request], view, lambda: self.policy.on_tokens(request, num_tokens, view)
        )

    def _call(
        self,
        method: str,
        shown: Sequence[RequestView],
        view: SchedulerView,
        call: Callable[[], Any],
    ) -> Any:
        before = _look(shown, view)
        answer: Any = None
        try:
            answer = call()
        except Exception as error:  # noqa: BLE001 - a policy may raise anything; it is told
            self._see("S9", f"{method} raised {where_raised(error)}")
        after = _look(shown, view)
        if before != after:
            changed = [str(key) for key in before if before[key] != after.get(key)]
            self._see("S11", f"{method} changed {', '.join(changed)}")
        return answer

    def _see(self, number: str, problem: str) -> None:
        if self.is_probe:
            return
        self.problems.append((number, problem))


def _look(shown: Sequence[RequestView], view: SchedulerView) -> dict[str, Any]:
    """Return all that a policy is shown."""
    seen: dict[str, Any] = {f"view.{name}": getattr(view, name) for name in _VIEW}
    seen["running"] = [one.request_id for one in shown]
    for one in shown:
        for name in _SHOWN:
            seen[f"{one.request_id}.{name}"] = getattr(one, name)
        seen[f"{one.request_id}.metadata"] = dict(one.metadata)
    return seen
