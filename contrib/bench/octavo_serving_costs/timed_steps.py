"""A plugin for a server that is measured: the stock executor, noting when each step ended.

Knows rows and the requests in them. Does not know who reads the times.
"""

from __future__ import annotations

import json
import time
from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any

from octavo import Component, ComponentOptions, OctavoSpecs
from octavo_plugins.executors.inline import InlineExecutor

if TYPE_CHECKING:
    from octavo.engine.plan import StepPlan
    from octavo.interfaces.executor import DoneStep, Executor


class TimedOptions(ComponentOptions):
    """Options of `timed`."""

    path: Path


class Timed(InlineExecutor):
    """Notes the end of each step, and writes all of them when it is closed."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._requests: dict[int, str] = {}
        self._ends: list[tuple[float, dict[str, int]]] = []

    def submit(self, plan: StepPlan) -> DoneStep:
        """Run the step, and note the time and how many tokens it gave to which request."""
        done = super().submit(plan)
        end_s = time.perf_counter()  # one clock for all processes
        self._requests.update((start.row, start.request_id) for start in plan.starts)
        given = zip(plan.advances, done.result().token_ids, strict=True)
        counts = {self._requests[advance.row]: len(ids) for advance, ids in given if ids}
        self._ends.append((end_s, counts))
        return done

    def close(self) -> None:
        """Write the times: a line for each step."""
        super().close()
        lines = (json.dumps(end) + "\n" for end in self._ends)
        self.options.path.write_text("".join(lines))


class Plugin(OctavoSpecs):
    """Declares `timed`."""

    def octavo_executors(self) -> list[Component[Executor]]:
        """Declare the executor."""
        summary = "inline, noting when steps end"
        return [
            Component(
                name="timed", target=Timed, options=TimedOptions, summary=summary, rank=-1,
            )
        ]  # fmt: skip


plugin = Plugin()
